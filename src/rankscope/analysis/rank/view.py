"""One rank prepared for analysis: kind of each event, busy time of device and host, threads that count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.blocked import blocked
from rankscope.analysis.rank.intervals import Spans
from rankscope.analysis.rank.rounded_ends import without_rounding
from rankscope.analysis.rank.select import distinct, one_of
from rankscope.trace.columns import Category, RankTrace
from rankscope.trace.names import Kind, classify, is_input

__all__ = ["RankView", "make_view", "name_mask"]

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class RankView:
    """Derived columns of one :class:`RankTrace`; all times are on the rank's own clock."""

    trace: RankTrace
    rank: int
    device: bool
    """False for a CPU-only trace, in which operators are the compute and the backend's operators the communication."""
    kind: NDArray[np.int8]
    """A :class:`Kind` per event."""
    names: NDArray[np.int32]
    """Codes of the names that events have, ascending: other strings are shapes."""
    chain: Mask
    """Host events of the threads that drive the training: those that launch device work or run operators."""
    start: int
    """Begin of the recorded window, ns of the rank's own clock; it lasts from the first step to the end of its last
    work."""
    end: int
    free: int
    """Begin of the accounted time: ``start``, or, if later, the end of device work that was queued before it. So the
    window has as many steps of device work as of host work."""
    compute: Spans
    comm: Spans
    copy: Spans
    fused: Spans
    """Kernels that compute and communicate at once."""
    fetch: Spans
    """Host time inside the data loader."""

    blocked: Spans = intervals.EMPTY
    """Without a device: time in which the training threads wait inside of operators."""

    @property
    def steps(self) -> int:
        """Number of recorded steps, 0 if the trace has no step marks."""
        return len(self.trace.steps)

    def spans(self, mask: Mask) -> Spans:
        """Return the union of the selected events."""
        events, rows = self.trace.events, np.flatnonzero(mask)
        start = events.start[rows]
        return intervals.union(start, start + events.duration[rows])

    def named(self, test: Any) -> Mask:
        """Select the events whose name passes ``test(name) -> bool``; each name that occurs is tested once."""
        return _mask_of(self.trace, self.names, test)

    def has_name(self, test: Any) -> bool:
        """Return whether the name of some event passes ``test(name) -> bool``."""
        return any(test(self.trace.strings[code]) for code in self.names.tolist())

    def accounted(self) -> tuple[Spans, Spans, Spans, Spans]:
        """Return compute, communication, copies and kernels that do both, within the accounted time."""
        parts = (self.compute, self.comm, self.copy, self.fused)
        compute, comm, copy, fused = (intervals.clip(s, self.free, self.end) for s in parts)
        return compute, comm, copy, fused


def name_mask(trace: RankTrace, test: Any) -> Mask:
    """As :meth:`RankView.named`, for a trace of which there is no view yet."""
    return _mask_of(trace, np.flatnonzero(np.bincount(trace.events.name)), test)


def _mask_of(trace: RankTrace, used: NDArray[np.integer[Any]], test: Any) -> Mask:
    passing = [code for code in used.tolist() if test(trace.strings[code])]
    if not passing:  # most tests are for names that few jobs have
        return np.zeros(len(trace.events), np.bool_)
    passes = np.zeros(len(trace.strings), np.bool_)
    passes[passing] = True
    return passes.take(trace.events.name)


def make_view(trace: RankTrace, rank: int) -> RankView:
    """Classify and measure one trace."""
    trace = without_rounding(_own_streams(trace))
    events = trace.events
    kind, names = _kinds(trace)
    device = bool(one_of(events.category, (Category.KERNEL, Category.GPU_MEMCPY, Category.GPU_MEMSET)).any())
    rows = trace.collectives.event
    if device:
        # a kernel of a recorded call communicates, whatever its name
        kind[rows[events.stream[rows] >= 0]] = Kind.COMMUNICATION
        kind[_between_devices(trace, names)] = Kind.COMMUNICATION
        work = events.stream >= 0
        work &= one_of(events.category, (Category.KERNEL, Category.GPU_MEMCPY, Category.GPU_MEMSET))
        beside = rows[(events.stream[rows] < 0) & (events.launch[rows] >= 0)]  # gloo: the device is idle meanwhile
        kind[beside] = Kind.COMMUNICATION
        work[beside] = True
    else:
        kind[rows] = Kind.COMMUNICATION
        work = (kind == Kind.COMPUTE) | (kind == Kind.COMMUNICATION)
    chain = _chain(trace, device, kind, names)
    kind[~work & (kind != Kind.WAIT)] = Kind.OTHER
    if not device:
        kind[(kind == Kind.COMPUTE) & ~chain] = Kind.OTHER
        work &= kind != Kind.OTHER
    start, end = _window(trace, work)
    free = max(start, _backlog_end(trace, work)) if device else start
    view = RankView(trace, rank, device, kind, names, chain, start, end, free, *([intervals.EMPTY] * 5))
    compute = view.spans(kind == Kind.COMPUTE)
    if not device:
        view.blocked = blocked(trace, chain, kind)
        compute = intervals.subtract(compute, view.blocked)
    view.compute, view.comm = compute, view.spans(kind == Kind.COMMUNICATION)
    view.copy, view.fused = view.spans(kind == Kind.COPY), view.spans(kind == Kind.FUSED)
    annotation = events.category == Category.USER_ANNOTATION
    view.fetch = view.spans(annotation & view.named(is_input))
    return view


def _own_streams(trace: RankTrace) -> RankTrace:
    """Give each stream of each device a number of its own, because all devices number their streams alike."""
    events = trace.events
    rows = np.flatnonzero(events.stream >= 0)
    if not len(rows) or (events.pid[rows] == events.pid[rows[0]]).all():
        return trace
    pairs, which = np.unique(np.stack((events.stream[rows], events.pid[rows])), axis=1, return_inverse=True)
    _, first = np.unique(pairs[0], return_index=True)
    again = np.setdiff1d(np.arange(pairs.shape[1]), first)
    if not len(again):
        return trace
    numbers = pairs[0].copy()
    numbers[again] = numbers.max() + 1 + np.arange(len(again))
    stream = events.stream.copy()
    stream[rows] = numbers[which.reshape(-1)]
    return replace(trace, events=replace(events, stream=stream))


def _kinds(trace: RankTrace) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Return the kind of each event, and the codes of all names."""
    events = trace.events
    if not len(events):
        return np.empty(0, np.int8), np.empty(0, np.int32)
    classes = len(Category)
    key = events.name.astype(np.int64) * classes + events.category
    used = np.flatnonzero(np.bincount(key))
    table = np.zeros(int(used[-1]) + 1, np.int8)
    table[used] = [int(classify(trace.strings[k // classes], k % classes)) for k in used.tolist()]
    return table.take(key), np.unique(used // classes).astype(np.int32)


def _between_devices(trace: RankTrace, names: NDArray[np.int32]) -> Mask:
    """Select copies to or from another rank's device: peer-to-peer copies of a process that computes on one device
    only."""
    events = trace.events
    copies = (events.category == Category.GPU_MEMCPY) & _mask_of(trace, names, lambda n: "PtoP" in n)
    one = trace.meta.world_size != 1 and len(distinct(events.pid[events.category == Category.KERNEL])) == 1
    return copies if one else np.zeros(len(events), np.bool_)


def _chain(trace: RankTrace, device: bool, kind: NDArray[np.int8], names: NDArray[np.int32]) -> Mask:
    """Select the threads that launch device work; without a device, those that compute on their own behalf.

    Backend threads (gloo, the NCCL watchdog) and data-loading helpers are left out, so that their activity does not
    count as work of the training loop.
    """
    events = trace.events
    host = events.stream < 0
    key = events.pid * 1_000_003 + events.tid
    if device:
        return host & one_of(key, distinct(key[events.launching]))
    busy = np.zeros(len(events), np.bool_)
    busy[trace.collectives.event] = True
    backend = np.unique(key[busy])
    marks = (events.category == Category.USER_ANNOTATION) & _mask_of(
        trace, names, lambda n: n.startswith("ProfilerStep#")
    )
    main = np.unique(key[marks])
    computing = np.unique(key[(kind == Kind.COMPUTE) & host])
    wanted = np.union1d(main, np.setdiff1d(computing, np.setdiff1d(backend, main)))
    return host & np.isin(key, wanted)


def _window(trace: RankTrace, work: Mask) -> tuple[int, int]:
    events, steps = trace.events, trace.steps
    if len(steps):
        end = int(steps.end[-1])
        late = events.end[work & (events.step >= 0)]
        return int(steps.start[0]), max(end, int(late.max()) if len(late) else end)
    if not work.any():
        return 0, 0
    return int(events.start[work].min()), int(events.end[work].max())


def _backlog_end(trace: RankTrace, work: Mask) -> int:
    """Return when the last work ended that its stream ran before the first work that a recorded step launched."""
    events, ends = trace.events, [np.iinfo(np.int64).min]  # a file without a base may have times below 0
    rows = np.flatnonzero(work)
    inside = events.step[rows] >= 0
    for stream in distinct(events.stream[rows[inside]]).tolist():
        mine = events.stream[rows] == stream
        first = int(np.flatnonzero(mine & inside)[0])
        before = rows[:first][mine[:first]]
        ends += [int(events.end[before].max())] if len(before) else []
    return max(ends)
