"""Tracks that no profiler records: steps, waits and transfers of matched calls, the straggler's intervals, and the
critical path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.operators.python_lines import user_frames
from rankscope.analysis.rank import intervals
from rankscope.analysis.replay.critical_path import Part, critical_path
from rankscope.analysis.replay.what_if import Segments
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.causes.table import DEVICE_CAUSES
from rankscope.causes.wording import cause_record
from rankscope.records.report import Verdict
from rankscope.statistics.thresholds import LEAST_EXCESS, LEAST_EXCESS_NS
from rankscope.timeline.json_lines import us
from rankscope.timeline.names import quoted
from rankscope.timeline.prepare import on_axis
from rankscope.timeline.selection import Selection
from rankscope.trace.names import Kind

__all__ = [
    "Slice",
    "call_args",
    "path_slices",
    "steps",
    "straggler_intervals",
    "wait_args",
    "waits_and_transfers",
    "wanted_calls",
]

I64 = NDArray[np.int64]

PATH_GAP_NS = 50_000
"""Gap in ns between two pieces of the path on one rank, up to which they are drawn as one: a launch, or a gap of a
stream."""
PATH_NAMES = {Part.LAUNCH: "launch", Part.HOST: "host", Part.DEVICE: "compute", Part.TRANSFER: "transfer"}


class Slice(NamedTuple):
    """A slice of a derived track, ns on the common clock."""

    start: int
    end: int
    name: str
    args: str
    """The content of a JSON object, without braces."""


def steps(window: WindowResult, column: int, selection: Selection) -> list[Slice]:
    """Return the steps of a rank on its host."""
    marks = window.views[column].trace.steps
    start = on_axis(window.clocks, column, marks.start)
    end = on_axis(window.clocks, column, marks.start + marks.duration)
    return [
        Slice(begin, until, f"step {number}", f'"window":{window.window},"attempt":{window.attempt}')
        for begin, until, number in zip(start.tolist(), end.tolist(), marks.number.tolist(), strict=True)
        if selection.has_step(number)
    ]


def path_slices(window: WindowResult) -> dict[int, list[Slice]]:
    """Return the stretches of the critical path, by column: adjacent pieces of one kind are joined, short gaps left
    out."""
    if window.replay is None or window.refused is not None or not window.replay.steps:
        return {}
    chain = critical_path(window.replay)
    found: dict[int, list[Slice]] = {}
    origin = window.clocks.origin
    begins, ends = (np.round(times).astype(np.int64) + origin for times in (chain.start, chain.end))
    for begin, end, part, column in zip(
        begins.tolist(), ends.tolist(), chain.part.tolist(), chain.column.tolist(), strict=True
    ):
        own = found.setdefault(column, [])
        name = PATH_NAMES[Part(part)]
        if own and own[-1].name == name and begin - own[-1].end <= PATH_GAP_NS:
            own[-1] = own[-1]._replace(end=end)
        elif part != Part.LAUNCH and end > begin:
            own.append(Slice(begin, end, name, '"of":"critical path"'))
    return found


def wanted_calls(window: WindowResult, column: int, selection: Selection) -> I64:
    """Return the matched calls in which the rank takes part, launched in a selected step."""
    members = window.matched.of(column)
    calls = window.matched.call[members].astype(np.int64)
    if selection.steps is None:
        return calls
    numbers = window.views[column].trace.steps.number
    step = window.waits.step[members]
    inside = np.array([s >= 0 and selection.has_step(int(numbers[s])) for s in step.tolist()], np.bool_)
    return calls[inside]


def waits_and_transfers(window: WindowResult, column: int, calls: I64) -> tuple[list[Slice], list[Slice]]:
    """Return waits (own arrival to last arrival) and transfers (from there to the own end), without empty ones.

    Waits in which recording began on some rank are left out too, as in the report's sums.
    """
    view, matched, waits = window.views[column], window.matched, window.waits
    members = matched.at(calls, column)
    events = view.trace.collectives.event[matched.row[members]]
    arrival = on_axis(window.clocks, column, view.trace.events.start[events])
    wait = np.round(waits.wait[members]).astype(np.int64)
    transfer = np.round(waits.transfer[members]).astype(np.int64)
    waiting, moving = [], []
    for call, begin, waited, moved in zip(
        calls.tolist(), arrival.tolist(), wait.tolist(), transfer.tolist(), strict=True
    ):
        args = call_args(window, call)
        last = window.views[int(waits.last[call])].rank
        if waited > 0 and not waits.early[call]:
            waiting.append(Slice(begin, begin + waited, f"wait for rank {last}", args))
        if moved > 0:
            moving.append(Slice(begin + waited, begin + waited + moved, matched.kind[call], args))
    return waiting, moving


def call_args(window: WindowResult, call: int) -> str:
    """Return the arguments of a matched call, which are the same on all its ranks."""
    channel = window.matched.channels[int(window.matched.channel[call])]
    last = window.views[int(window.waits.last[call])].rank
    return (
        f'"collective":{quoted(window.matched.kind[call])},"group":{quoted(channel.name)},'
        f'"ranks":{len(channel.ranks)},"call":"{window.attempt}.{window.window}.{call}","last rank":{last}'
    )


def straggler_intervals(window: WindowResult, column: int, verdict: Verdict) -> list[Slice]:
    """Return when the verdict's rank does more than its peers, for the cause that the verdict names.

    Host causes are marked in the host's time: waiting for input exactly, others as the stretch between two launches of
    matched calls. Causes in the device's work are marked where that work ran.
    """
    view, replay = window.views[column], window.replay
    if view.rank not in verdict.ranks or verdict.cause is None or replay is None:
        return []
    peers = [p for p in replay.peers[column] if p != column]
    if not peers:
        return []
    own, others = _per_segment(window, replay.segments, column, peers, verdict.cause)
    least = max(LEAST_EXCESS * (window.step_ns or 0.0), LEAST_EXCESS_NS)
    bounds = window.profiles[column].bounds
    frames = user_frames(view)
    found = []
    for segment in np.flatnonzero(own - others > least).tolist():
        if segment + 1 >= len(bounds):
            continue
        args = f'"own ms":{own[segment] / 1e6:.3f},"peers ms":{others[segment] / 1e6:.3f}'
        for begin, end in _places(window, column, verdict.cause, int(bounds[segment]), int(bounds[segment + 1])):
            axis = on_axis(window.clocks, column, np.array([begin, end], np.int64)).tolist()
            line = next(iter(frames.inside((np.array([begin]), np.array([end])))), "") if len(frames) else ""
            code = f',"code":{quoted(line)}' if line else ""
            found.append(Slice(axis[0], axis[1], cause_record(verdict.cause).noun, args + code))
    return found


def _per_segment(
    window: WindowResult, segments: Segments, column: int, peers: list[int], cause: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the time of the rank, and the median of its peers, in each segment, ns."""
    record = cause_record(cause)
    if record.host_time and not record.by_count:
        lengths = [p.length[cause] for p in window.profiles]
        return lengths[column], np.asarray(np.median([lengths[p] for p in peers], axis=0))
    table = segments.device if cause in DEVICE_CAUSES and window.views[column].device else segments.host
    return table[column], np.asarray(np.median(table[peers], axis=0))


def _places(window: WindowResult, column: int, cause: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    view = window.views[column]
    events = view.trace.events
    if cause == "input_stall":
        spans = intervals.clip(view.fetch, begin, end)
        yield from zip(spans[0].tolist(), spans[1].tolist(), strict=True)
    elif cause in DEVICE_CAUSES and view.device:
        work = np.flatnonzero((view.kind == Kind.COMPUTE) & (events.launch >= 0))
        asked = events.start[events.launch[work]]
        work = work[(asked >= begin) & (asked < end)]
        if len(work):
            yield int(events.start[work].min()), int(events.end[work].max())
    else:
        yield begin, end


def wait_args(window: WindowResult, member: int) -> str:
    """Return :func:`call_args` with the wait and transfer of one of its ranks."""
    call = int(window.matched.call[member])
    wait, transfer = round(float(window.waits.wait[member])), round(float(window.waits.transfer[member]))
    began = ',"recording began in it":true' if window.waits.early[call] else ""
    return f'{call_args(window, call)},"wait us":{us(wait)},"transfer us":{us(transfer)}{began}'
