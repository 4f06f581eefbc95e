"""Count training steps from signals, without changes to the user's code.

Signals come from :mod:`rankscope.agent.signals`, in order of trust. A better signal takes over when it appears. Signals
that also occur in jobs with a better one count only if no better one came: after :data:`FEW` of their events if no
better one is expected, after :data:`PATIENCE` if one is, because gradient accumulation and several loaders make them
over-count.

A plain optimizer hook counts too many or too few steps in these cases, which are handled here: ``super().step()`` and
ZeroRedundancyOptimizer nest (depth), several optimizers and optimizer-in-backward (only the anchor counts), an
optimizer stepped twice for one batch (coalesced while root forwards are seen), a step captured whole into a CUDA graph
(counted at each replay). Under-counted by design: steps that a GradScaler skips, and steps compiled whole by
torch.compile.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from rankscope.agent.signals.base import Signal
from rankscope.agent.signals.table import OURS

__all__ = ["FEW", "PATIENCE", "StepCounter"]

FEW = 2
"""Small, because the default window begins with step 13, and its ranks have to agree on it before. One event is not
enough: a model may be called once to determine its shapes, or evaluated on a batch."""
PATIENCE = 16
"""Most jobs have fewer micro-batches per step."""
_PATIENCE_FOR_OPTIMIZER = 64
"""Larger, because an optimizer that was created will step sooner or later."""


class StepCounter:
    """Turns signals into completed steps. Pure: no torch, no clock.

    Args:
        on_step: called with the number of steps completed so far, once per step.
        source: ``auto``, or the name of the only signal to count.
        signals: the known signals, in order of trust.
    """

    def __init__(self, on_step: Callable[[int], None], source: str = "auto", signals: Sequence[Signal] = OURS) -> None:
        self._on_step = on_step
        self._fixed = source if source != "auto" else None
        self._signals = {signal.name: signal for signal in signals}
        self._order = {signal.name: number for number, signal in enumerate(signals)}
        self._counts = dict.fromkeys(self._signals, 0)
        self._expected: set[str] = set()
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        self._anchor: Callable[[], object | None] = lambda: None
        self._others: dict[int, int] = {}
        self._repeats = 0
        self._forward_seen = False
        self._forward_since_step = False
        self.changes = 0
        """Number of times that a better signal took over, after which steps are counted from 1 again."""
        self.source = self._fixed

    @property
    def completed(self) -> int:
        """Steps completed so far by the signal that counts."""
        return self._counts.get(self.source, 0) if self.source else 0

    @property
    def trust(self) -> str | None:
        """How certain it is that one signal is one step; see :data:`rankscope.agent.signals.base.Trust`."""
        signal = self._signals.get(self.source) if self.source else None
        return None if signal is None else signal.trust

    def signal(self, kind: str) -> None:
        """Handle one event of the signal of that name."""
        self._counts[kind] += 1
        if self.source is None or (self._fixed is None and self._order[kind] < self._order[self.source]):
            if self._fixed is None and self._counts[kind] < self._patience(kind):
                return
            self.changes += self.source is not None
            self.source = kind
            self._tell()
        if kind == self.source:
            self._on_step(self.completed)

    def expect(self, kind: str) -> None:
        """Note that the signal of that name will come."""
        self._expected.add(kind)

    def root_forward(self) -> None:
        """Note that a root model begins a forward with gradients."""
        self._forward_seen = self._forward_since_step = True

    def when_believed(self, kind: str, call: Callable[[], None]) -> None:
        """Call ``call`` once steps are counted by a signal that is trusted more than this one."""
        self._waiting.append((kind, call))
        self._tell()

    def restart(self) -> None:
        """Reset: no signal so far belonged to a step of the job."""
        seen = self.source if self._fixed is None else None
        self._counts = dict.fromkeys(self._counts, 0)
        if seen is not None:
            self._counts[seen] = 1  # the signal that is being handled

    def optimizer_stepped(self, optimizer: object) -> None:
        """Handle the return of the outermost ``step`` of an optimizer."""
        anchor = self._anchor()
        if anchor is not optimizer:
            # There is no anchor yet, or it no longer exists, or it stopped stepping while another optimizer continues.
            alone = self._others[id(optimizer)] = self._others.get(id(optimizer), 0) + 1
            if anchor is not None and alone <= PATIENCE:
                return
            self._anchor = weakref.ref(optimizer)
        self._others.clear()
        if self._forward_seen and not self._forward_since_step:
            self._repeats += 1
            if self._repeats < PATIENCE:
                return
            self._forward_seen = False  # root forwards are not visible any more, e.g. inside a compiled region
        self._repeats = 0
        self._forward_since_step = False
        self.signal("optimizer")

    def _patience(self, kind: str) -> int:
        if not self._signals[kind].patience:
            return 1
        better = {name for name in self._expected if self._order[name] < self._order[kind]}
        if "optimizer" in better:
            return _PATIENCE_FOR_OPTIMIZER
        return PATIENCE if better else FEW

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for kind, call in waiting:
            if self.source is not None and self._order.get(self.source, 0) < self._order[kind]:
                call()
            else:
                self._waiting.append((kind, call))
