"""What several ranks do in one step, on one clock: for a picture in which one sees who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.errors import AnalysisError
from rankscope.listing import some_ranks
from rankscope.records.lanes import Lane, LanePiece, StepLanes
from rankscope.timeline.derived_tracks import waits_and_transfers, wanted_calls
from rankscope.timeline.prepare import on_axis
from rankscope.timeline.selection import Selection

__all__ = ["step_lanes"]

I64 = NDArray[np.int64]
Spans = tuple[I64, I64]

_NARROWEST = 1 / 2000
"""Gaps below this share of the step are not drawn: they would be narrower than a pixel."""


def step_lanes(windows: Sequence[WindowResult], step: int, ranks: Sequence[int]) -> StepLanes:
    """Return host, computation and communication of some ranks in one step.

    Raises:
        AnalysisError: the step was not recorded, or one of the ranks was not.
    """
    for window in windows:
        columns = {view.rank: column for column, view in enumerate(window.views)}
        if any(step in view.trace.steps.number for view in window.views):
            break
    else:
        numbers = {int(n) for w in windows for view in w.views for n in view.trace.steps.number}
        raise AnalysisError(f"step {step} was not recorded; recorded are {some_ranks(numbers) or 'none'}")
    if absent := [rank for rank in ranks if rank not in columns]:
        raise AnalysisError(f"rank {some_ranks(absent)} did not record step {step}; recorded: {some_ranks(columns)}")
    chosen = [columns[rank] for rank in ranks]
    bounds = [found for column in chosen if (found := _bounds(window, column, step)) is not None]
    if not bounds:
        raise AnalysisError(f"rank {some_ranks(ranks)} did not record step {step}")
    begin, end = min(first for first, _ in bounds), max(last for _, last in bounds)
    lanes = [lane for column in chosen for lane in _lanes(window, column, step, begin, end)]
    return StepLanes(step=step, step_ms=(end - begin) / 1e6, lanes=lanes)


def _bounds(window: WindowResult, column: int, step: int) -> tuple[int, int] | None:
    """Return begin and end of the step and its work on the common clock; None if the rank did not record it."""
    trace = window.views[column].trace
    place = np.flatnonzero(trace.steps.number == step)
    if not len(place):
        return None
    own = trace.events.step == place[0]
    last = max(int(trace.steps.end[place[0]]), int(trace.events.end[own].max(initial=0)))
    found = on_axis(window.clocks, column, np.array([trace.steps.start[place[0]], last], np.int64))
    return int(found[0]), int(found[1])


def _lanes(window: WindowResult, column: int, step: int, begin: int, end: int) -> Iterator[Lane]:
    view, events = window.views[column], window.views[column].trace.events
    host = intervals.subtract(intervals.union(events.start[view.chain], events.end[view.chain]), view.fetch)

    def pieces(kind: str, spans: Spans) -> Iterator[LanePiece]:
        moved = on_axis(window.clocks, column, spans[0]), on_axis(window.clocks, column, spans[1])
        yield from _pieces(kind, _joined(intervals.clip(moved, begin, end), end - begin), begin)

    yield Lane(rank=view.rank, track="host", pieces=[*pieces("host", host), *pieces("input", view.fetch)])
    kinds = (("compute", view.compute), ("fused", view.fused), ("copy", view.copy))
    yield Lane(rank=view.rank, track="compute", pieces=[p for kind, spans in kinds for p in pieces(kind, spans)])
    calls = wanted_calls(window, column, Selection(steps=(step, step)))
    said: list[LanePiece] = []
    for kind, slices in zip(("waiting", "transfer"), waits_and_transfers(window, column, calls), strict=True):
        said += [
            LanePiece(start_ms=(s.start - begin) / 1e6, duration_ms=(s.end - s.start) / 1e6, kind=kind, name=s.name)
            for s in slices
        ]
    yield Lane(rank=view.rank, track="communication", pieces=said)


def _joined(spans: Spans, length: int) -> Spans:
    """Join spans whose gaps are too narrow to be seen."""
    if not len(spans[0]):
        return spans
    apart = spans[0][1:] - spans[1][:-1] > length * _NARROWEST
    return spans[0][np.concatenate(([True], apart))], spans[1][np.concatenate((apart, [True]))]


def _pieces(kind: str, spans: Spans, begin: int) -> Iterator[LanePiece]:
    for start, end in zip(spans[0].tolist(), spans[1].tolist(), strict=True):
        yield LanePiece(start_ms=(start - begin) / 1e6, duration_ms=(end - start) / 1e6, kind=kind)
