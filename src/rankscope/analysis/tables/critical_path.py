"""The critical path of a recorded step: which work to shorten, on which rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.operators.work import operator_of_kernels
from rankscope.analysis.replay.critical_path import Chain, Part, critical_path
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.causes.wording import cause_record
from rankscope.records.rows import CriticalPath, PathPart, PathPiece
from rankscope.trace.columns import Category
from rankscope.trace.names import DEVICE_WORK

__all__ = ["critical_path_row"]

F64 = NDArray[np.float64]

MOST_PIECES = 400
"""Largest number of pieces of the displayed step."""
SHORT = 0.0005
"""Initial share of the step below which a piece is joined with the one before it; larger if there are too many
pieces."""
NAMES = {Part.LAUNCH: "launch", Part.HOST: "host", Part.DEVICE: "compute", Part.TRANSFER: "transfer"}


def critical_path_row(windows: Sequence[WindowResult]) -> CriticalPath | None:
    """Return the path of the median step of the first window that was replayed; None if there is none."""
    window = next((w for w in windows if w.refused is None and w.replay is not None and w.replay.steps), None)
    if window is None or window.replay is None:
        return None
    chain, replay = critical_path(window.replay), window.replay
    bounds = np.concatenate(([replay.begin], replay.unchanged))
    if len(chain.start):  # work in progress when the window began is left out
        bounds = bounds[min(int(np.searchsorted(bounds, chain.start[0])), len(bounds) - 2) :]
    length = np.diff(bounds)
    chosen = int(np.argsort(length, kind="stable")[(len(length) - 1) // 2])
    numbers = _step_numbers(window)[-len(length) :]
    shown = chain.within(bounds[chosen], bounds[chosen + 1])
    return CriticalPath(
        attempt=window.attempt,
        window=window.window,
        step=numbers[chosen] if chosen < len(numbers) else None,
        step_ms=float(length[chosen]) / 1e6,
        parts=_parts(window, chain.within(bounds[0], bounds[-1]), int(replay.spans[-len(length) :].sum())),
        pieces=_few(_pieces(window, shown, float(bounds[chosen])), SHORT * float(length[chosen]) / 1e6),
    )


def _step_numbers(window: WindowResult) -> list[int]:
    """Return the numbers of the steps that end with a matched call."""
    of_call, matched = window.waits.steps.of_call, window.matched
    return [int(of_call[matched.call[mine[0]]]) for mine in window.waits.common_calls(matched)]


def _parts(window: WindowResult, chain: Chain, steps: int) -> list[PathPart]:
    """Return how long the path stays on each rank with each kind of work, most first."""
    total: Counter[tuple[int, int]] = Counter()
    for column, part, ns in zip(
        chain.column.tolist(), chain.part.tolist(), (chain.end - chain.start).tolist(), strict=True
    ):
        total[column, part] += ns
    return [
        PathPart(rank=_rank(window, column), kind=NAMES[Part(part)], ms_per_step=ns / steps / 1e6)
        for (column, part), ns in total.most_common()
        if ns > 0
    ]


def _rank(window: WindowResult, column: int) -> int | None:
    return window.views[column].rank if column >= 0 else None


def _few(pieces: list[PathPiece], short_ms: float) -> list[PathPiece]:
    """Join similar pieces, and short ones with their predecessors, until there are few enough to be drawn."""
    found = _joined(pieces, short_ms)
    while len(found) > MOST_PIECES:
        short_ms *= 2.0
        found = _joined(found, short_ms)
    return found


def _joined(pieces: list[PathPiece], short_ms: float) -> list[PathPiece]:
    """Join a piece with the previous one if rank, kind and name are equal, also across short pieces of the same
    rank."""
    found: list[PathPiece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if last is not None:
            alike = (piece.rank, piece.kind, piece.name) == (last.rank, last.kind, last.name)
            if alike or (piece.duration_ms < short_ms and piece.rank in (last.rank, None)):
                last.duration_ms = piece.start_ms + piece.duration_ms - last.start_ms
                continue
        found.append(replace(piece))
    return found


def _pieces(window: WindowResult, chain: Chain, begin: float) -> list[PathPiece]:
    names = _Names(window)
    columns = (chain.start, chain.end, chain.part, chain.column, chain.call)
    return [
        PathPiece(
            rank=_rank(window, column),
            kind=NAMES[Part(part)],
            name=name,
            start_ms=(first - begin) / 1e6,
            duration_ms=(last - first) / 1e6,
        )
        for start, end, part, column, call in zip(*(values.tolist() for values in columns), strict=True)
        for first, last, name in names.of(start, end, part, column, call)
    ]


class _Names:
    """Names the work in a piece: the operator of the running kernel, the causes of host time, the call."""

    def __init__(self, window: WindowResult) -> None:
        self._window = window
        self._work: dict[int, tuple[F64, list[str]]] = {}
        self._causes: dict[int, list[tuple[float, float, str]]] = {}

    def of(self, start: float, end: float, part: int, column: int, call: int) -> list[tuple[float, float, str]]:
        """Return the piece, or the pieces into which it is split."""
        name = ""
        if part == Part.TRANSFER and call >= 0:
            matched = self._window.matched
            name = f"{matched.kind[call]} of {matched.channels[int(matched.channel[call])].name}"
        elif part == Part.DEVICE and column >= 0:
            name = self._device(start, column)
        elif part == Part.HOST and column >= 0:
            return self._host(start, end, column)
        return [(start, end, name)]

    def _device(self, start: float, column: int) -> str:
        """Return the name of the work that began last by then: a piece begins with its kernel, or is cut by the step's
        begin."""
        if column not in self._work:
            self._work[column] = self._work_of(column)
        begins, names = self._work[column]
        place = int(np.searchsorted(begins, start + 1.0, "right")) - 1
        return names[place] if place >= 0 else ""

    def _work_of(self, column: int) -> tuple[F64, list[str]]:
        view = self._window.views[column]
        events, strings = view.trace.events, view.trace.strings
        rows = np.flatnonzero(
            np.isin(view.kind, DEVICE_WORK) & (events.stream >= 0)
            if view.device
            else events.category == Category.CPU_OP
        )
        named = events.name.astype(np.int64)
        kernels, operators = operator_of_kernels(view)
        known = operators >= 0
        named[kernels[known]] = events.name[operators[known]]
        begin = self._window.clocks.aligned(column, events.start[rows])
        order = np.argsort(begin, kind="stable")
        return begin[order], [strings[code] for code in named[rows][order].tolist()]

    def _host(self, start: float, end: float, column: int) -> list[tuple[float, float, str]]:
        """Split a piece into parts with a cause and the time between them; causes of one rank do not overlap."""
        if column >= len(self._window.profiles):
            return [(start, end, "")]
        if column not in self._causes:
            self._causes[column] = self._causes_of(column)
        found, at = [], start
        for begin, until, noun in self._causes[column]:
            first, last = max(begin, at), min(until, end)
            if last > first:
                found += [(at, first, ""), (first, last, noun)] if first > at else [(first, last, noun)]
                at = last
        return [*found, (at, end, "")] if end > at else found

    def _causes_of(self, column: int) -> list[tuple[float, float, str]]:
        """Return the time of each cause on a rank, in order of time."""
        aligned = self._window.clocks.aligned
        found = []
        for cause, (begins, ends) in self._window.profiles[column].spans.items():
            if len(begins):
                first, last = aligned(column, begins).tolist(), aligned(column, ends).tolist()
                found += [(a, b, cause_record(cause).noun) for a, b in zip(first, last, strict=True)]
        return sorted(found)
