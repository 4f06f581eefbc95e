"""HTA's breakdowns of the device's time over our columns. ``table`` says why they are not computed by HTA itself.

Source: HolisticTraceAnalysis 0.5.0, ``hta.analyzers.breakdown_analysis``, ``communication_analysis``,
``trace_counters``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.hta.events import HtaRank
from rankscope.analysis.hta.numbers import Record, described, sums_by_name
from rankscope.analysis.rank import intervals
from rankscope.trace.columns import Category

__all__ = [
    "comm_comp_overlap",
    "idle_time_breakdown",
    "kernel_breakdown",
    "kernel_type_breakdown",
    "memory_bandwidth",
    "temporal_breakdown",
]

_KERNEL_GAP_US = 30
"""HTA's ``consecutive_kernel_delay``: documented as ns, but compared with microseconds."""
_ANALYSED = ("COMPUTATION", "COMMUNICATION", "MEMORY")
"""HTA's types whose kernels it breaks down, in its order."""


def temporal_breakdown(rank: HtaRank) -> Record:
    """Split the time from the first kernel to the end of the last."""
    rows = np.concatenate(list(rank.types.values()))
    events = rank.trace.events
    start, end = events.start[rows], events.start[rows] + events.duration[rows]
    whole = (int(end.max()) - int(start.min())) / 1000
    busy = intervals.measure(intervals.union(start, end)) / 1000
    compute = intervals.measure(rank.spans["COMPUTATION"]) / 1000
    parts = {"idle_time": whole - busy, "compute_time": compute, "non_compute_time": busy - compute}
    return {f"{name}(us)": value for name, value in {**parts, "kernel_time": whole}.items()} | {
        f"{name}_pctg": round(100 * value / whole, 2) if whole else None for name, value in parts.items()
    }


def comm_comp_overlap(rank: HtaRank) -> Record:
    """Return the share of communication during which something was computed."""
    communication = rank.spans["COMMUNICATION"]
    both = intervals.measure(intervals.intersect(communication, rank.spans["COMPUTATION"]))
    whole = intervals.measure(communication)
    return {"comp_comm_overlap_pctg": round(100 * both / whole, 2) if whole else None}


def idle_time_breakdown(rank: HtaRank) -> list[Record]:
    """Classify the gaps between the kernels of each stream: launched too late, short, or other. The numbers of one gap
    are its ``show_idle_interval_stats``."""
    events = rank.trace.events
    rows = np.flatnonzero((events.category >= Category.KERNEL) & (events.category <= Category.GPU_MEMSET))
    rows = rows[events.stream[rows] != -1]
    found: list[Record] = []
    for stream in _by_first(events.stream[rows]):
        own = rows[events.stream[rows] == stream]
        before, after = own[:-1], own[1:]
        ended = events.start[before] + events.duration[before]
        gap = (events.start[after] - ended) / 1000
        launch = events.launch[after]
        late = (launch >= 0) & (events.start[launch.clip(0)] > ended)
        short = ~late & (gap < _KERNEL_GAP_US)
        parts = {"host_wait": late, "kernel_wait": short, "other": ~late & ~short}
        whole = float(gap.sum())
        found += [
            {
                "stream": int(stream),
                "idle_category": kind,
                "idle_time": round(float(gap[where].sum()), 2),
                "idle_time_ratio": round(float(gap[where].sum()) / whole, 2) if whole else None,
                "count": int(where.sum()),
                **{
                    name: round(float(of(gap[where])), 2) if where.any() else None
                    for name, of in (("min", np.min), ("50%", np.median), ("max", np.max))
                },
            }
            for kind, where in parts.items()
            if where.any() or kind == "other"  # HTA counts the first kernel, which has no gap, as other
        ]
    return found


def kernel_breakdown(rank: HtaRank) -> list[Record]:
    """Return the time of each kernel by name; those beyond the first few of a type are summed as ``others``."""
    found = [
        record | {"kernel_type": kind} for kind in _ANALYSED for record in sums_by_name(rank.trace, rank.types[kind])
    ]
    return sorted(found, key=lambda r: (r["kernel_type"], r["name"]))


def kernel_type_breakdown(rank: HtaRank) -> list[Record]:
    """Return the time in which kernels of one type ran, and in which those of several types ran at once."""
    spans = [rank.spans[kind] for kind in _ANALYSED]
    edges = np.concatenate([np.concatenate(span) for span in spans])
    change = np.concatenate([np.repeat((1 << bit, -(1 << bit)), len(span[0])) for bit, span in enumerate(spans)])
    order = np.argsort(edges, kind="stable")
    running = np.cumsum(change[order])[:-1]
    lengths = np.bincount(running, np.diff(edges[order]), 1 << len(spans)) / 1000 if len(edges) else np.zeros(1)
    whole = float(lengths[1:].sum())
    found = [
        {
            "kernel_type": " overlapping ".join(kind for bit, kind in enumerate(_ANALYSED) if which & 1 << bit),
            "sum": float(lengths[which]),
            "percentage": round(100 * float(lengths[which]) / whole, 1),
        }
        for which in range(1, len(lengths))
        if lengths[which] > 0
    ]
    return sorted(found, key=lambda record: -record["sum"])


def memory_bandwidth(rank: HtaRank) -> list[Record]:
    """Return the bandwidth of copies and memsets in GB/s, at each change; copies of one kind at the same time add
    up."""
    trace = rank.trace
    events, rows = trace.events, rank.types["MEMORY"]
    kinds = {code: _copy_of(trace.strings[code]) for code in np.unique(events.name[rows]).tolist()}
    found = []
    for kind in sorted(set(kinds.values())):
        own = rows[np.isin(events.name[rows], [code for code, its in kinds.items() if its == kind])]
        duration = np.where(events.duration[own] == 0, 1000, events.duration[own])
        times = np.concatenate((events.start[own], events.start[own] + duration))
        change = np.concatenate((events.bandwidth_gb_s[own], -events.bandwidth_gb_s[own]))
        level = np.cumsum(change[np.argsort(times, kind="stable")])
        # rounding residue after all copies have ended is not bandwidth, though HTA counts it
        busy = level[level > 1e-9]
        if len(busy):
            found.append({"name": kind, **described(busy)})
    return found


def _copy_of(name: str) -> str:
    if name.startswith("Memset"):
        return "Memset"
    return name[: len("Memcpy DtoH")] if name.startswith("Memcpy") else "Memcpy Unknown"


def _by_first(values: NDArray[Any]) -> list[Any]:
    return list(dict.fromkeys(values.tolist()))
