"""One rank of one window as slices: the events that may be shown, their size, and their tracks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.windows.analyse import WindowResult
from rankscope.timeline import derived_tracks as derived
from rankscope.timeline.json_lines import ARROW_BYTES, SLICE_BYTES, slice_line
from rankscope.timeline.names import quoted_all
from rankscope.timeline.prepare import on_axis
from rankscope.timeline.selection import CATEGORIES, Selection
from rankscope.timeline.size_limit import importance
from rankscope.timeline.tracks import Tracks, lanes
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["Part", "event_lines", "make_part", "track_count"]

I64 = NDArray[np.int64]

_LABELS = {category: name for name, category in CATEGORIES.items()}
_DEVICE, _ANNOTATION, _HOST = range(3)
"""Kinds of tracks in the order of their ids, which is the display order in viewers without a sort index."""
_GPU_ORDER, _HOST_ORDER = 10, 500
"""Positions of the tracks within a rank, after the derived ones."""


@dataclass(slots=True)
class Part:
    """One rank of one window, with the events that may be shown."""

    window: WindowResult
    column: int
    rows: I64
    classes: NDArray[np.int8]
    length: I64
    cost: I64
    calls: I64
    """Matched calls that are shown."""
    args: dict[int, str]
    """Arguments of events that are collectives."""
    names: list[str]
    places: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Written event at which an arrow may end -> pid, tid, start."""

    @property
    def rank(self) -> int:
        """The rank."""
        return self.window.views[self.column].rank


def make_part(window: WindowResult, column: int, selection: Selection) -> Part:
    """Return the events of a rank that the user selected, with the size of each."""
    trace = window.views[column].trace
    events = trace.events
    mask = np.ones(len(events), np.bool_)
    if selection.categories is not None:
        mask &= np.isin(events.category, [int(c) for c in selection.categories])
    if selection.steps is not None:
        inside = np.array([*(selection.has_step(int(n)) for n in trace.steps.number), False], np.bool_)
        mask &= inside[events.step]  # -1, no step, is the last entry
    rows = np.flatnonzero(mask)
    names = quoted_all(trace.strings)
    length = np.array([len(n) for n in names], np.int64)
    labels = np.array([len(_LABELS.get(Category(c), "")) for c in range(max(Category) + 1)], np.int64)
    shape = events.shape[rows]
    cost = SLICE_BYTES + 2 + length[events.name[rows]] + labels[events.category[rows]]
    cost += np.where(shape >= 0, (length[shape] if len(length) else 0) + 10, 0)
    calls = derived.wanted_calls(window, column, selection)
    members = window.matched.at(calls, column)
    of_members = trace.collectives.event[window.matched.row[members]].tolist()
    args = {event: derived.wait_args(window, m) for m, event in zip(members.tolist(), of_members, strict=True)}
    for index in np.flatnonzero(np.isin(rows, list(args))).tolist():
        cost[index] += len(args[int(rows[index])]) + ARROW_BYTES + 2
    classes = importance(events.category, trace.collectives.event.astype(np.int64))[rows]
    return Part(window, column, rows, classes, events.duration[rows], cost, calls, args, names)


def track_count(part: Part) -> int:
    """Return the largest number of tracks that the part needs, with one spare lane each."""
    events = part.window.views[part.column].trace.events
    key = _track_keys(part, part.rows)
    return 2 * np.unique(key, axis=1).shape[1] if len(events) else 0


def _track_keys(part: Part, rows: I64) -> I64:
    """Return kind of track, process or device, thread or stream."""
    events = part.window.views[part.column].trace.events
    annotation = events.category[rows] == Category.GPU_USER_ANNOTATION
    kind = np.where(annotation, _ANNOTATION, np.where(events.stream[rows] >= 0, _DEVICE, _HOST))
    return np.stack((kind, events.pid[rows], events.tid[rows]))


def event_lines(base_ns: int, part: Part, rows: I64, tracks: Tracks, *, launches: bool) -> Iterator[str]:
    """Yield slices of the chosen events, track by track. ``launches``: note where arrows from launches may end."""
    view = part.window.views[part.column]
    events, steps, pid = view.trace.events, view.trace.steps.number.tolist(), tracks.process(part.rank)
    start = on_axis(part.window.clocks, part.column, events.start[rows]) - base_ns
    end = on_axis(part.window.clocks, part.column, events.end[rows]) - base_ns
    ends_arrows = _ends_arrows(part, launches=launches)
    for own, name, order in _split(part, rows):
        lane = lanes(start[own], end[own])
        tid = [tracks.thread(part.rank, name, number, name, order) for number in range(int(lane.max()) + 1)]
        chosen = rows[own]
        for row, begin, until, code, category, step, shape, number in zip(
            chosen.tolist(), start[own].tolist(), end[own].tolist(), events.name[chosen].tolist(),
            events.category[chosen].tolist(), events.step[chosen].tolist(), events.shape[chosen].tolist(),
            lane.tolist(), strict=True,
        ):  # fmt: skip
            args = f'"step":{steps[step]}' if step >= 0 else ""
            if shape >= 0:
                args += f'{"," if args else ""}"shape":{part.names[shape]}'
            if row in part.args:
                args += f"{',' if args else ''}{part.args[row]}"
            if ends_arrows[row]:
                part.places[row] = (pid, tid[number], begin)
            yield slice_line(pid, tid[number], begin, until, _LABELS[Category(category)], part.names[code], args)


def _ends_arrows(part: Part, *, launches: bool) -> list[bool]:
    """Select collectives, and if wanted work on the device and the calls that launched it."""
    launch = part.window.views[part.column].trace.events.launch
    mask = np.zeros(len(launch), np.bool_)
    if launches:
        mask = launch >= 0
        mask[launch[mask]] = True
    mask[list(part.args)] = True
    ends: list[bool] = mask.tolist()
    return ends


def _split(part: Part, rows: I64) -> Iterator[tuple[I64, str, int]]:
    """Yield rows by thread or stream, with the track's name and order."""
    if not len(rows):
        return
    distinct, inverse = np.unique(_track_keys(part, rows), axis=1, return_inverse=True)
    inverse, main = inverse.reshape(-1), _main_thread(part)
    for number, (what, process, thread) in enumerate(distinct.T.tolist()):
        own = np.flatnonzero(inverse == number)
        if what == _HOST:
            yield own, *_host_track(part, rows[own], process, thread, main)
        else:
            yield own, *_device_track(part, rows[own], process, thread, annotations=what == _ANNOTATION)


def _host_track(part: Part, rows: I64, process: int, thread: int, main: tuple[int, int] | None) -> tuple[str, int]:
    if thread < 0 or process < 0:  # Kineto's own tracks have words instead of numbers
        return f"profiler {abs(min(thread, process))}", _HOST_ORDER + 400
    if (process, thread) == main:
        return f"main thread {thread}", _HOST_ORDER
    if part.window.views[part.column].chain[rows].any():
        return f"training thread {thread}", _HOST_ORDER + 10
    return f"thread {thread}", _HOST_ORDER + 20


def _device_track(part: Part, rows: I64, device: int, stream: int, *, annotations: bool) -> tuple[str, int]:
    order = _GPU_ORDER + 2 * min(max(stream, 0), 200)
    if annotations:
        return f"GPU {device} stream {stream}, annotations", order
    kind = part.window.views[part.column].kind[rows]
    talks = 2 * int((kind == Kind.COMMUNICATION).sum()) > len(kind)
    return f"GPU {device} stream {stream}{', communication' if talks else ''}", order + 1


def _main_thread(part: Part) -> tuple[int, int] | None:
    """Return process and thread of the step marks."""
    trace = part.window.views[part.column].trace
    if not len(trace.steps):
        return None
    first = np.flatnonzero(
        (trace.events.start == trace.steps.start[0]) & (trace.events.duration == trace.steps.duration[0])
    )
    return (int(trace.events.pid[first[0]]), int(trace.events.tid[first[0]])) if len(first) else None
