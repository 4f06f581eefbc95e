"""Parts of the step that the script named: time on the host, and the work launched inside, by rank."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.view import RankView
from rankscope.records.from_script import RegionRow
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["is_region", "own_regions", "region_rows"]

MOST = 30
"""Regions that are listed, those with the longest times."""
MOST_RANKS = 64
"""Ranks of which a region's times are listed one by one."""
_NOT_OF_SCRIPTS = re.compile(
    r"""^(?: ProfilerStep\# | Optimizer\.\w+\# | enumerate\(DataLoader\) | DistributedDataParallel\.
    | FullyShardedDataParallel\. | FSDP:: | (?:nccl|rccl|gloo|mpi|ucc|xccl|c10d): | record_param_comms
    | \#\#\ Call\ Compiled | Torch-Compiled\ Region | TorchDynamo | AOTDispatcher | CompiledFunction
    | Pregraph\ bytecode | rankscope\. )
    | \(dynamo_timed\)$""",
    re.VERBOSE,
)
"""Ranges that PyTorch itself and the agent write; other libraries' ranges are as good as the script's own."""

Mask = NDArray[np.bool_]


@lru_cache(1 << 14)
def is_region(name: str) -> bool:
    """Return whether a range of this name is the script's own."""
    return _NOT_OF_SCRIPTS.search(name) is None


def region_rows(views: Sequence[RankView]) -> list[RegionRow]:
    """Return the rows, the longest on the host first; empty without regions or steps."""
    masks = [_recorded(view) for view in views]
    total: dict[str, float] = defaultdict(float)
    for view, mask in zip(views, masks, strict=True):
        events = view.trace.events
        for code, ns in enumerate(np.bincount(events.name[mask], events.duration[mask]).tolist()):
            if ns > 0:
                total[view.trace.strings[code]] += ns
    wanted = set(sorted(total, key=lambda name: -total[name])[:MOST])
    if not wanted:
        return []
    steps: dict[int, int] = defaultdict(int)
    sums: dict[str, dict[int, NDArray[np.float64]]] = defaultdict(lambda: defaultdict(lambda: np.zeros(3)))
    for view, mask in zip(views, masks, strict=True):
        steps[view.rank] += view.steps
        for name, numbers in _measured(view, mask, wanted):
            sums[name][view.rank] += numbers
    device = any(view.device for view in views)
    rows = [_row(name, {rank: sums[name][rank] / steps[rank] for rank in sums[name]}, device) for name in sums]
    return sorted(rows, key=lambda row: -row.host_ms)


def own_regions(view: RankView) -> dict[str, intervals.Spans]:
    """Return the times of each region of the script in recorded steps, on the rank's own clock, of all threads."""
    events, mask = view.trace.events, _recorded(view)
    found = {}
    for code in np.unique(events.name[mask]).tolist():
        rows = np.flatnonzero(mask & (events.name == code))
        found[view.trace.strings[code]] = intervals.union(events.start[rows], events.end[rows])
    return found


def _recorded(view: RankView) -> Mask:
    """Select the regions in recorded steps."""
    events = view.trace.events
    mask = (events.category == Category.USER_ANNOTATION) & (events.step >= 0)
    return np.asarray(mask & view.named(is_region)) if mask.any() else mask


def _measured(view: RankView, mask: Mask, wanted: set[str]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield each region with its calls, time on the host and time on the device, ns, in the view's steps."""
    events = view.trace.events
    thread = events.pid * 1_000_003 + events.tid
    work = np.flatnonzero((events.launch >= 0) & (events.stream >= 0) & (view.kind != Kind.OTHER))
    launch = events.launch[work]
    for code in np.unique(events.name[mask]).tolist():
        name = view.trace.strings[code]
        if name not in wanted:
            continue
        rows = np.flatnonzero(mask & (events.name == code))
        numbers, inside = np.zeros(3), np.zeros(len(work), np.bool_)
        for own in np.unique(thread[rows]).tolist():
            mine = rows[thread[rows] == own]
            start, end = events.start[mine], events.end[mine]
            before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
            spans = intervals.union(start, end)
            numbers += (int((start >= before).sum()), intervals.measure(spans), 0.0)
            inside |= (thread[launch] == own) & intervals.contains(spans, events.start[launch])
        done = work[inside]
        numbers[2] = intervals.measure(intervals.union(events.start[done], events.end[done]))
        yield name, numbers


def _row(name: str, per_step: dict[int, NDArray[np.float64]], device: bool) -> RegionRow:
    host = {rank: float(numbers[1]) / 1e6 for rank, numbers in per_step.items()}
    row = RegionRow(
        region=name,
        ranks=len(host),
        calls_per_step=fmean(float(numbers[0]) for numbers in per_step.values()),
        host_ms=median(host.values()),
        host_rank=_longest(host)[0],
        host_ms_by_rank={str(rank): host[rank] for rank in sorted(_longest(host)[:MOST_RANKS])},
    )
    if device:
        work = {rank: float(numbers[2]) / 1e6 for rank, numbers in per_step.items()}
        row.device_ms, row.device_rank = median(work.values()), _longest(work)[0]
        row.device_ms_by_rank = {str(rank): work[rank] for rank in sorted(_longest(work)[:MOST_RANKS])}
    return row


def _longest(by_rank: dict[int, float]) -> list[int]:
    return sorted(by_rank, key=lambda rank: (-by_rank[rank], rank))
