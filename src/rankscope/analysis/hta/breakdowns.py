"""HTA's numbers without HTA: its breakdowns over our columns, vectorised.

HolisticTraceAnalysis computes these row by row in pandas (the type of a kernel is determined by a regular expression
for each event, again in each analysis), which took longer than the rest of the report. The definitions are its own,
including its classification of kernels by name; ``tests/unit/analysis/test_hta_parity.py`` compares the results.
Intended differences are listed in docs/hta.md. Units are HTA's: microseconds and per cent.

Source: HolisticTraceAnalysis 0.5.0, ``hta.analyzers``.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.trace.columns import Category, RankTrace

__all__ = ["BREAKDOWNS", "MOST_KERNELS", "kernel_types", "type_of"]

MOST_KERNELS = 8
"""Number of kernels of each type in the kernel breakdown; the others are summed."""
_TOP_RATIO = 0.8
_KERNEL_GAP_US = 30
"""HTA's ``consecutive_kernel_delay``: documented as ns, but compared with microseconds."""
_COMMUNICATION = re.compile(r"nccl.*Kernel")
_MEMORY = re.compile(r"Memcpy|Memset|dma")
_NO_COMPUTATION = re.compile(r".*Memcpy|Memset|.*Sync")
_LAUNCHES = frozenset(
    {
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "cuLaunchKernelEx",  # since 0.6, as the successor is named
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "runFunction - job_prep_and_submit_for_execution",
        "hipLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipMemsetAsync",
        "hipMemcpyAsync",
        "hipMemcpyWithStream",
    }
)
Record = dict[str, Any]


def type_of(name: str) -> str:
    """Return HTA's type of a kernel of this name."""
    if _COMMUNICATION.match(name):
        return "COMMUNICATION"
    if _MEMORY.match(name):
        return "MEMORY"
    return "OTHER" if _NO_COMPUTATION.match(name) else "COMPUTATION"


def kernel_types(trace: RankTrace) -> dict[str, NDArray[np.int64]]:
    """Return rows of the device's events by HTA's type. Like HTA, this treats everything on a stream as a kernel."""
    events = trace.events
    rows = np.flatnonzero((events.stream != -1) & (events.category != Category.CUDA_SYNC))
    names = events.name[rows]
    types = {code: type_of(trace.strings[code]) for code in np.unique(names).tolist()}
    return {
        kind: rows[np.isin(names, [code for code, its in types.items() if its == kind])]
        for kind in ("COMPUTATION", "COMMUNICATION", "MEMORY", "OTHER")
    }


def temporal_breakdown(trace: RankTrace) -> Record:
    """Split the time from the first kernel to the end of the last."""
    types = kernel_types(trace)
    rows = np.concatenate(list(types.values()))
    start, end = trace.events.start[rows], trace.events.start[rows] + trace.events.duration[rows]
    whole = (int(end.max()) - int(start.min())) / 1000
    busy = intervals.measure(intervals.union(start, end)) / 1000
    compute = intervals.measure(_spans(trace, types["COMPUTATION"])) / 1000
    parts = {"idle_time": whole - busy, "compute_time": compute, "non_compute_time": busy - compute}
    return {f"{name}(us)": value for name, value in {**parts, "kernel_time": whole}.items()} | {
        f"{name}_pctg": round(100 * value / whole, 2) if whole else None for name, value in parts.items()
    }


def comm_comp_overlap(trace: RankTrace) -> Record:
    """Return the share of communication during which something was computed."""
    types = kernel_types(trace)
    communication = _spans(trace, types["COMMUNICATION"])
    both = intervals.measure(intervals.intersect(communication, _spans(trace, types["COMPUTATION"])))
    whole = intervals.measure(communication)
    return {"comp_comm_overlap_pctg": round(100 * both / whole, 2) if whole else None}


def idle_time_breakdown(trace: RankTrace) -> list[Record]:
    """Classify the gaps between the kernels of each stream: launched too late, short, or other."""
    events = trace.events
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
        sums = {kind: float(gap[where].sum()) for kind, where in parts.items()}
        whole = sum(sums.values())
        found += [
            {
                "stream": int(stream),
                "idle_category": kind,
                "idle_time": round(time, 2),
                "idle_time_ratio": round(time / whole, 2) if whole else None,
            }
            for kind, time in sums.items()
            if parts[kind].any() or kind == "other"  # HTA counts the first kernel, which has no gap, as other
        ]
    return found


def kernel_breakdown(trace: RankTrace) -> list[Record]:
    """Return the time of each kernel by name; those beyond the first few are summed as ``others``."""
    types, found = kernel_types(trace), []
    for kind in ("COMPUTATION", "COMMUNICATION"):
        names, duration = trace.events.name[types[kind]], trace.events.duration[types[kind]] / 1000
        known, place = np.unique(names, return_inverse=True)
        sums = np.bincount(place, duration, len(known))
        order = np.argsort(-sums, kind="stable")
        kept = np.zeros(len(known), bool)
        kept[order[:MOST_KERNELS]] = True
        if len(known) > MOST_KERNELS:
            total = np.cumsum(sums[order])
            kept[order[total > np.quantile(total, _TOP_RATIO)]] = False
        times = {trace.strings[known[i]]: duration[place == i] for i in np.flatnonzero(kept).tolist()}
        if not kept.all():
            times["others"] = duration[~kept[place]]
        found += [
            {
                "name": name,
                "sum (us)": float(own.sum()),
                "max (us)": float(own.max()),
                "min (us)": float(own.min()),
                "stddev": float(own.std(ddof=1)) if len(own) > 1 else 0.0,
                "mean (us)": float(own.mean()),
                "kernel_type": kind,
            }
            for name, own in times.items()
        ]
    return sorted(found, key=lambda r: (r["kernel_type"], r["name"]))


def queue_length(trace: RankTrace) -> list[Record]:
    """Return how many launched kernels wait on each stream, at each change."""
    events = trace.events
    codes = [code for code, text in enumerate(trace.strings) if text in _LAUNCHES]
    rows = np.concatenate(list(kernel_types(trace).values()))
    rows = np.sort(rows[events.launch[rows] >= 0])
    rows = rows[np.isin(events.name[events.launch[rows]], codes)]
    found = []
    for stream in np.unique(events.stream[rows]).tolist():
        own = rows[events.stream[rows] == stream]
        times = np.concatenate((events.start[events.launch[own]], events.start[own]))
        change = np.repeat(np.array([1, -1], np.int64), len(own))
        found.append({"stream": stream, **_described(np.cumsum(change[np.argsort(times, kind="stable")]) * 1.0)})
    return found


def memory_bandwidth(trace: RankTrace) -> list[Record]:
    """Return the bandwidth of copies and memsets in GB/s, at each change; copies of one kind at the same time add
    up."""
    events, rows = trace.events, kernel_types(trace)["MEMORY"]
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
            found.append({"name": kind, **_described(busy)})
    return found


def _copy_of(name: str) -> str:
    if name.startswith("Memset"):
        return "Memset"
    return name[: len("Memcpy DtoH")] if name.startswith("Memcpy") else "Memcpy Unknown"


def _spans(trace: RankTrace, rows: NDArray[np.int64]) -> intervals.Spans:
    start = trace.events.start[rows]
    return intervals.union(start, start + trace.events.duration[rows])


def _by_first(values: NDArray[Any]) -> list[Any]:
    return list(dict.fromkeys(values.tolist()))


def _described(values: NDArray[np.floating[Any]]) -> Record:
    """Return the values of pandas' ``describe``."""
    quarter, half, three = np.quantile(values, (0.25, 0.5, 0.75))
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else None,
        "min": float(values.min()),
        "25%": float(quarter),
        "50%": float(half),
        "75%": float(three),
        "max": float(values.max()),
    }


BREAKDOWNS = {
    "temporal_breakdown": temporal_breakdown,
    "comm_comp_overlap": comm_comp_overlap,
    "idle_time_breakdown": idle_time_breakdown,
    "kernel_breakdown": kernel_breakdown,
    "queue_length": queue_length,
    "memory_bandwidth": memory_bandwidth,
}
"""Name in the report -> function that computes the numbers of one rank."""
