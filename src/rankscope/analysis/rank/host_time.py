"""Host time of one rank, as causes query it (``causes.base.HostTime``)."""

from __future__ import annotations

from re import Pattern

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["RankHostTime"]

SILENCE_NS = 1_000_000
"""A stretch of the training threads without any operator or call counts as a pause from this duration on."""


class RankHostTime:
    """Host time of one rank. Only the threads that drive the training count."""

    def __init__(self, view: RankView) -> None:
        self._view = view
        self._calls = view.chain & one_of(view.trace.events.category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER))

    def events(self, names: Pattern[str]) -> intervals.Spans:
        """Return the time in host events whose names match."""
        return self._view.spans(self.named_events(names))

    def calls(self, names: Pattern[str]) -> intervals.Spans:
        """Return the time in runtime and driver calls whose names match."""
        return self._view.spans(self.named_calls(names))

    def named_calls(self, names: Pattern[str]) -> NDArray[np.bool_]:
        """Return the mask of these calls."""
        return self._calls & self._view.named(names.search)

    def named_events(self, names: Pattern[str]) -> NDArray[np.bool_]:
        """Return the mask of host events whose names match, on the threads that drive the training."""
        return self._view.chain & self._view.named(names.search)

    def loading(self) -> intervals.Spans:
        """Return the time in the data loader."""
        return self._view.fetch

    def copies_to_device(self) -> intervals.Spans:
        """Return the time in copy calls in which the device takes part: long ones are copies from pageable memory."""
        view, events = self._view, self._view.trace.events
        copying = np.zeros(len(events), np.bool_)
        to_device = view.named(lambda n: "HtoD" in n or "HostToDevice" in n)
        launch = events.launch[np.flatnonzero((view.kind == Kind.COPY) & to_device)]
        copying[launch[launch >= 0]] = True
        return view.spans(self._calls & copying)

    def silence(self) -> intervals.Spans:
        """Return the long stretches in which the training threads run neither an operator nor a call.

        They are limited to the end of the last step, since a device that is behind its host works on alone.
        """
        view, events, steps = self._view, self._view.trace.events, self._view.trace.steps
        noise = one_of(events.category, (Category.CPU_OP, Category.CUDA_RUNTIME, Category.CUDA_DRIVER))
        running = view.chain & noise & ~view.named(lambda n: n.startswith("autograd::engine::evaluate"))
        busy = view.spans(running)
        until = int(steps.end[-1]) if view.device and len(steps) else view.end
        free = intervals.complement(busy, view.start, until)
        if not view.device:
            free = intervals.subtract(free, view.comm)  # during communication it may wait for its peers
        long = free[1] - free[0] >= SILENCE_NS
        return free[0][long], free[1][long]
