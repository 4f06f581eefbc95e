"""Kernels (operators on a CPU-only trace) by name, over all ranks and windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.operators.efficiency import MOST_RANKS
from rankscope.analysis.operators.origins import origins
from rankscope.analysis.operators.work import self_time
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView
from rankscope.records.rows import KernelRow
from rankscope.trace.names import Kind, family

__all__ = ["kernel_rows", "median_kernel_us"]

MOST = 50


def kernel_rows(views: Sequence[RankView], *, most: int = MOST) -> list[KernelRow]:
    """Return the names with most time, averaged per step over the ranks that ran them.

    On a CPU-only trace an operator's time is its self time. Without step marks there are no values per step, and ranks
    are compared by their sums.
    """
    time: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    count: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    kinds: dict[str, Kind] = {}
    steps: dict[int, int] = defaultdict(int)
    for view in views:
        steps[view.rank] += view.steps
        events = view.trace.events
        work = ~one_of(view.kind, (Kind.OTHER, Kind.WAIT))
        if view.steps:
            work &= events.step >= 0
        chosen = np.flatnonzero(work)
        code = events.name[chosen]
        total, launches = np.bincount(code, _length(view)[chosen]), np.bincount(code)
        kind = np.zeros(len(launches), np.int8)
        kind[code] = view.kind[chosen]
        for own in np.flatnonzero(launches).tolist():
            name = view.trace.strings[own]
            time[name][view.rank] += float(total[own])
            count[name][view.rank] += float(launches[own])
            kinds[name] = Kind(int(kind[own]))
    rows = []
    devices = [view for view in views if view.device]
    origin = origins(devices[:: max(-(-len(devices) // MOST_RANKS), 1)])
    everything = sum(sum(by_rank.values()) for by_rank in time.values())
    for name in sorted(time, key=lambda n: -sum(time[n].values()))[:most]:
        per_step = {rank: ns / steps[rank] / 1e6 for rank, ns in time[name].items() if steps[rank]}
        launched = [n / steps[rank] for rank, n in count[name].items() if steps[rank]]
        known = bool(per_step)
        per_step = per_step or {rank: ns / 1e6 for rank, ns in time[name].items()}
        values = np.array(list(per_step.values()))
        top = max(per_step, key=lambda rank: per_step[rank])
        middle = float(np.median(values))
        rows.append(
            KernelRow(
                name=name,
                category=family(name, kinds[name]),
                ms_per_step=float(values.mean()) if known else None,
                launches_per_step=float(np.mean(launched)) if launched else None,
                share_pct=100.0 * sum(time[name].values()) / everything if everything else 0.0,
                max_rank=top,
                max_over_median=per_step[top] / middle if middle > 0 else None,
                operator=origin[name].operator if name in origin else None,
                shapes=origin[name].shapes if name in origin else None,
                tflops=origin[name].tflops if name in origin else None,
                gb_s=origin[name].gb_s if name in origin else None,
                module=origin[name].module if name in origin else None,
            )
        )
    return rows


def _length(view: RankView) -> NDArray[np.float64]:
    """Return the duration of each event, ns; without a device, the self time of operators that compute."""
    length = view.trace.events.duration.astype(np.float64)
    return length if view.device else np.where(view.kind == Kind.COMPUTE, self_time(view), length)


def median_kernel_us(views: Sequence[RankView]) -> float | None:
    """Median duration of the compute kernels of all ranks, microseconds; None without a device."""
    found = [v.trace.events.duration[v.kind == Kind.COMPUTE] for v in views if v.device]
    durations = np.concatenate(found) if found else np.empty(0)
    return float(np.median(durations)) / 1e3 if len(durations) else None
