"""Why a rank is late: what its host and device did in each segment, against the same segment on its peers.

Every attribute is a length (ns) or a count per segment, a segment being the stretch between two launches of matched
calls. Comparing sums over the segments in which a rank is late with its peers' gives milliseconds explained.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import intervals
from rankscope.analysis.categories import Kind
from rankscope.analysis.view import RankView, name_mask
from rankscope.trace.columns import Category

__all__ = ["ATTRIBUTES", "COUNTS", "Profile", "profile", "work_difference"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

ATTRIBUTES = ("recompile", "input_stall", "allocator", "h2d_copy", "host_sync", "host_pause")
"""Lengths that name a cause, most specific first: time in two of them belongs to the first."""

COUNTS = ("syncs", "ops", "launches")

SILENCE_NS = 1_000_000
"""A stretch of the training threads without any operator or call is a pause from here on."""

_COMPILE = re.compile(r"compile_id=|_compile\b|entire_frame_compile|CachingAutotuner|async_compile|TritonBundler")
_ALLOCATOR = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|MemGetInfo|FreeHost|MallocHost)|^cuMem(Create|Map|Unmap|Release)"
)
_SYNC = re.compile(r"Synchronize$")


@dataclass(slots=True)
class Profile:
    """One rank's attributes: S values each."""

    bounds: I64
    """Own-clock times between which the segments lie, S + 1."""
    shift: int
    """Position of the first segment."""
    length: dict[str, F64]
    count: dict[str, F64]
    named: intervals.Spans
    """Host time in any attribute: what is computed there (a compiler tries operators out, a loader stacks samples)
    belongs to that cause, and is no work beside it."""


def profile(view: RankView, cuts: I64, shift: int, size: int) -> Profile:
    """Attributes of a rank.

    Args:
        view: the rank.
        cuts: launches of the calls that bound its segments, in order, own clock.
        shift: position of the first of them.
        size: number of positions of the window.
    """
    events = view.trace.events
    bounds = np.concatenate(([view.start], cuts, [max(view.end, int(cuts[-1]) if len(cuts) else 0)])).astype(np.int64)
    begin, end = bounds[:-1], np.maximum(bounds[1:], bounds[:-1])

    host = view.chain
    calls = host & np.isin(events.category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER))
    operators = host & (events.category == Category.CPU_OP)
    # not aten::item: an optimizer reads its step counters from CPU tensors hundreds of times without waiting
    syncs = calls & name_mask(view.trace, _SYNC.search)
    named = {
        "recompile": view.spans(host & name_mask(view.trace, _COMPILE.search)),
        "input_stall": view.fetch,
        "allocator": view.spans(calls & name_mask(view.trace, _ALLOCATOR.search)),
        "h2d_copy": _copy_spans(view, calls),
        "host_sync": view.spans(syncs),
        "host_pause": _silence(view),
    }
    taken = intervals.EMPTY
    length: dict[str, F64] = {}
    for name in ATTRIBUTES:
        spans = intervals.subtract(named[name], taken)
        length[name] = _padded(intervals.cover(spans, begin, end), shift, size)
        taken = intervals.union(np.concatenate((taken[0], spans[0])), np.concatenate((taken[1], spans[1])))
    masks = {"syncs": syncs, "ops": operators, "launches": events.launching}
    count = {
        name: _padded(np.histogram(events.start[mask], bounds)[0] if len(bounds) > 1 else np.zeros(0), shift, size)
        for name, mask in masks.items()
    }
    return Profile(bounds, shift, length, count, taken)


def _padded(values: NDArray[np.int64] | F64, shift: int, size: int) -> F64:
    out = np.zeros(max(size, shift + len(values)))
    out[shift : shift + len(values)] = values
    return out[:size]


def _copy_spans(view: RankView, calls: NDArray[np.bool_]) -> intervals.Spans:
    """Host time in copy calls of which the device took part: long ones are copies from pageable memory."""
    events = view.trace.events
    copying = np.zeros(len(events), np.bool_)
    to_device = name_mask(view.trace, lambda n: "HtoD" in n or "HostToDevice" in n)
    launch = events.launch[(view.kind == Kind.COPY) & to_device]
    copying[launch[launch >= 0]] = True
    return view.spans(calls & copying)


def _silence(view: RankView) -> intervals.Spans:
    """Long stretches in which the training threads run neither an operator nor a call.

    Up to the end of their last step: a device that is behind works on alone.
    """
    events, steps = view.trace.events, view.trace.steps
    noise = np.isin(events.category, (Category.CPU_OP, Category.CUDA_RUNTIME, Category.CUDA_DRIVER))
    running = view.chain & noise & ~name_mask(view.trace, lambda n: n.startswith("autograd::engine::evaluate"))
    busy = view.spans(running)
    until = int(steps.end[-1]) if view.device and len(steps) else view.end
    free = intervals.complement(busy, view.start, until)
    if not view.device:
        free = intervals.subtract(free, view.comm)  # there it may wait for its peers
    long = free[1] - free[0] >= SILENCE_NS
    return free[0][long], free[1][long]


def work_difference(late: RankView, peer: RankView, a: Profile, b: Profile, segments: I64) -> dict[str, float]:
    """Split the extra device work (operators on a CPU) of ``late`` over ``peer`` into causes, ns.

    ``extra_compute``: operators the peer does not run, or fewer of. ``uneven_work``: the same, with other shapes.
    ``slow_compute``: the same with the same shapes, but longer. Judged by operators, not kernel names, because the
    library picks another kernel for another shape.
    """
    more = _work_time(late, a, segments) - _work_time(peer, b, segments)
    if more <= 0:
        return {}
    ours, theirs = _operators(late, a, segments), _operators(peer, b, segments)
    count_a, count_b = Counter(k[0] for k in ours.elements()), Counter(k[0] for k in theirs.elements())
    extra = sum((count_a - count_b).values())
    total = max(sum(count_b.values()), 1)
    if extra > max(0.02 * total, 2):
        return {"extra_compute": more}
    shaped = any(k[1] for k in ours)
    differing = sum((ours - theirs).values())
    if shaped and differing > 0.2 * total:
        return {"uneven_work": more}
    if not shaped and _grids(late, a, segments) != _grids(peer, b, segments):
        return {"uneven_work": more}
    return {"slow_compute": more}


def _inside(own: Profile, times: I64, segments: I64) -> NDArray[np.bool_]:
    """Times in the given segments, outside of what has a name of its own."""
    place = np.searchsorted(own.bounds, times, side="right") - 1
    return np.isin(np.where(place >= 0, place + own.shift, -1), segments) & ~intervals.contains(own.named, times)


def _work_time(view: RankView, own: Profile, segments: I64) -> float:
    events = view.trace.events
    compute = np.flatnonzero(view.kind == Kind.COMPUTE)
    if not view.device:
        begin, end = own.bounds[:-1], own.bounds[1:]
        chosen = segments - own.shift
        chosen = chosen[(chosen >= 0) & (chosen < len(begin))]
        alone = intervals.subtract(view.compute, own.named)
        return float(intervals.cover(alone, begin[chosen], end[chosen]).sum())
    compute = compute[events.launch[compute] >= 0]
    asked = events.start[events.launch[compute]]
    return float(events.duration[compute[_inside(own, asked, segments)]].sum())


def _operators(view: RankView, own: Profile, segments: I64) -> Counter[tuple[str, str]]:
    """(name, input dims) of the operators of the training threads."""
    events, strings = view.trace.events, view.trace.strings
    chosen = np.flatnonzero(view.chain & (events.category == Category.CPU_OP))
    chosen = chosen[_inside(own, events.start[chosen], segments)]
    pairs, counts = np.unique(np.stack((events.name[chosen], events.shape[chosen])), axis=1, return_counts=True)
    return Counter(
        {
            (strings[n], strings[s] if s >= 0 else ""): int(c)
            for n, s, c in zip(pairs[0].tolist(), pairs[1].tolist(), counts.tolist(), strict=True)
        }
    )


def _grids(view: RankView, own: Profile, segments: I64) -> Counter[str]:
    events, strings = view.trace.events, view.trace.strings
    chosen = np.flatnonzero((view.kind == Kind.COMPUTE) & (events.launch >= 0))
    chosen = chosen[_inside(own, events.start[events.launch[chosen]], segments)]
    return Counter(strings[s] if s >= 0 else "" for s in events.shape[chosen].tolist())
