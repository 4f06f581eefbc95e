"""Where does a training step end? Counted without touching the user's code.

Signals, best first: ``user`` (``rankscope.step()``), ``optimizer`` (the outermost ``Optimizer.step`` of the anchor
optimizer), ``profiler`` (``step()`` of the user's own torch.profiler), ``forward`` (a DDP or FSDP2 root forward with
gradients), ``input`` (``DataLoader`` items). A better signal takes over when it appears; the last two
count only when nothing better came for :data:`PATIENCE` of their events, since gradient accumulation and several
loaders make them over-count.

A plain optimizer hook counts too many or too few steps in these cases, which are handled here: ``super().step()`` and
ZeroRedundancyOptimizer nest (depth), several optimizers and optimizer-in-backward (only the anchor counts), an
optimizer stepped twice for one batch (coalesced while root forwards are seen), a step captured whole into a CUDA graph
(counted at each replay). Under-counted by design: steps that a GradScaler skips, and steps compiled whole by
torch.compile.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from rankscope.agent.process.guard import guarded
from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.steps.cuda_graphs import CapturedSignals

__all__ = ["PATIENCE", "SIGNALS", "StepCounter", "install_detectors"]

SIGNALS = ("user", "optimizer", "profiler", "forward", "input")
PATIENCE = 16


class StepCounter:
    """Turns signals into completed steps. Pure: no torch, no clock.

    Args:
        on_step: called with the number of steps completed so far, once per step.
        source: ``auto``, or the one signal to believe.
    """

    def __init__(self, on_step: Callable[[int], None], source: str = "auto") -> None:
        self._on_step = on_step
        self._fixed = source if source != "auto" else None
        self._counts = dict.fromkeys(SIGNALS, 0)
        self._anchor: Callable[[], object | None] = lambda: None
        self._others: dict[int, int] = {}
        self._repeats = 0
        self._forward_seen = False
        self._forward_since_step = False
        self.source = self._fixed

    @property
    def completed(self) -> int:
        """Steps completed so far by the signal that counts."""
        return self._counts[self.source] if self.source else 0

    def signal(self, kind: str) -> None:
        """One event of a kind in :data:`SIGNALS`."""
        self._counts[kind] += 1
        if kind == "forward":
            self._forward_seen = self._forward_since_step = True
        if self.source is None or (self._fixed is None and SIGNALS.index(kind) < SIGNALS.index(self.source)):
            if kind in ("forward", "input") and self._counts[kind] < PATIENCE and self._fixed is None:
                return
            self.source = kind
        if kind == self.source:
            self._on_step(self.completed)

    def optimizer_stepped(self, optimizer: object) -> None:
        """The outermost ``step`` of an optimizer has returned."""
        anchor = self._anchor()
        if anchor is not optimizer:
            # None yet, or it is gone, or it stopped stepping while another one goes on.
            alone = self._others[id(optimizer)] = self._others.get(id(optimizer), 0) + 1
            if anchor is not None and alone <= PATIENCE:
                return
            self._anchor = weakref.ref(optimizer)
        self._others.clear()
        if self._forward_seen and not self._forward_since_step:
            self._repeats += 1
            if self._repeats < PATIENCE:
                return
            self._forward_seen = False  # root forwards have gone out of sight, e.g. into a compiled region
        self._repeats = 0
        self._forward_since_step = False
        self.signal("optimizer")


def install_detectors(
    counter: StepCounter,
    fetched: Callable[[int], None],
    graph_begins: Callable[[], None],
    between: Callable[[], None] = lambda: None,
) -> Callable[[str], None]:
    """Put the signals in place. Each patch calls the original first or last and changes neither result nor error.

    Args:
        counter: gets the signals.
        fetched: gets the nanoseconds spent in each ``DataLoader.__next__``.
        graph_begins: called before a CUDA graph is captured.
        between: called where the script is likely to be between steps: before an optimizer steps, before an item is
            fetched, and before the outermost forward.

    Returns:
        How the script itself gives a signal. Raises nothing.
    """
    captured = CapturedSignals()

    @guarded
    def signal(kind: str) -> None:
        captured.emit(functools.partial(counter.signal, kind))

    @guarded
    def stepped(optimizer: object) -> None:
        reference = weakref.ref(optimizer)  # a graph keeps no optimizer alive

        def count() -> None:
            if (optimizer := reference()) is not None:
                counter.optimizer_stepped(optimizer)

        captured.emit(count)

    @guarded
    def capture_begins(graph: object) -> None:
        captured.begin(graph)
        graph_begins()

    # Not during a capture into a CUDA graph, where nothing may wait for the device.
    between = guarded(functools.partial(captured.unless_capturing, between))
    fetched = guarded(fetched)

    def forward() -> None:
        between()
        _if_training(signal)

    _watch_optimizers(stepped, between)
    _after(torch.nn.parallel.DistributedDataParallel, "_pre_forward", lambda _ddp: forward())
    _watch_graphs(torch.cuda.CUDAGraph, capture_begins, guarded(captured.replayed))
    if (torch.version.cuda or torch.version.hip) and hasattr(torch.accelerator, "Graph"):  # another name for the same
        _watch_graphs(torch.accelerator.Graph, capture_begins, guarded(captured.replayed))
    after_import(
        "torch.distributed.fsdp._fully_shard._fsdp_state",
        lambda: _watch_fsdp2(forward),
    )
    after_import("torch.utils.data.dataloader", lambda: _watch_loaders(signal, fetched, between))
    after_import("torch.profiler.profiler", lambda: _watch_profilers(signal))
    return signal


def _if_training(signal: Callable[[str], None]) -> None:
    if torch.is_grad_enabled():
        signal("forward")


def _watch_optimizers(stepped: Callable[[object], None], between: Callable[[], None]) -> None:
    """Wrap what ``Optimizer`` wraps around every ``step``: from outside, so that the profiler's own range of the
    optimizer is closed when a window starts or stops (inside a post hook it would be cut)."""
    original = torch.optim.Optimizer.profile_hook_step
    depth = 0

    def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
        hooked = original(function)

        @functools.wraps(hooked)
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if torch.compiler.is_compiling():
                return hooked(*args, **kwargs)
            if depth == 0:
                between()
            depth += 1
            try:
                result = hooked(*args, **kwargs)
            finally:
                depth -= 1
            if depth == 0 and args:
                stepped(args[0])
            return result

        return step

    torch.optim.Optimizer.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore[assignment]


def _watch_fsdp2(forward: Callable[[], None]) -> None:
    from torch.distributed.fsdp._fully_shard import _fsdp_state

    def pre_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if getattr(self, "_is_root", False) and not torch.compiler.is_compiling():
            forward()
        return result

    original = _fsdp_state.FSDPState._root_pre_forward  # noqa: SLF001 - the one place every root forward passes
    _fsdp_state.FSDPState._root_pre_forward = pre_forward  # type: ignore[method-assign]  # noqa: SLF001


def _watch_loaders(signal: Callable[[str], None], fetched: Callable[[int], None], between: Callable[[], None]) -> None:
    from torch.utils.data import dataloader

    iterator: Any = dataloader._BaseDataLoaderIter  # noqa: SLF001 - base of all iterators
    original, clock = iterator.__next__, time.perf_counter_ns

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - the method's own name
        if not torch.compiler.is_compiling():
            between()
        begun = clock()
        try:
            item = original(self)
        finally:
            fetched(clock() - begun)
        if not torch.compiler.is_compiling():
            signal("input")
        return item

    iterator.__next__ = __next__


def _watch_profilers(signal: Callable[[str], None]) -> None:
    from torch.profiler import profiler

    _after(profiler.profile, "step", lambda _profile: signal("profiler"))


def _watch_graphs(graph: Any, capture_begins: Callable[[Any], None], replayed: Callable[[Any], None]) -> None:
    original = graph.capture_begin

    @functools.wraps(original)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        capture_begins(self)
        original(self, *args, **kwargs)

    graph.capture_begin = capture_begin
    _after(graph, "replay", replayed)


def _after(owner: type, name: str, call: Callable[[Any], None]) -> None:
    """Call back, with the object, after a method has returned normally; under torch.compile's tracing the method alone
    remains."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if not torch.compiler.is_compiling():
            call(self)
        return result

    setattr(owner, name, method)
