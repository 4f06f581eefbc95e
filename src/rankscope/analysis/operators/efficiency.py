"""How well the devices are used: operations and bytes per second compared with their peak, and where their time
goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from rankscope.analysis.operators.bytes import bytes_of_elementwise
from rankscope.analysis.operators.convolutions import Convolutions
from rankscope.analysis.operators.device_peaks import peak_of
from rankscope.analysis.operators.flops import flop
from rankscope.analysis.operators.groups import COMPILED, MATRIX, MEMORY_BOUND, group_of, uses_tensor_cores
from rankscope.analysis.operators.work import operator_of_kernels
from rankscope.analysis.rank.view import RankView
from rankscope.records.rows import Efficiency, WorkGroup

__all__ = ["MOST_RANKS", "efficiency"]

MOST_RANKS = 4
"""Number of ranks that are read, spread over the job. Ranks of one role do the same work, and reading is done kernel by
kernel."""
SMALL_NS = 10_000
"""A kernel shorter than this (ns) cannot fill a large device, and takes about as long to launch as to run."""


def efficiency(views: Sequence[RankView], step_ms: float | None) -> Efficiency | None:
    """Return means over the ranks; None without a device or without steps.

    Args:
        views: each rank in one window.
        step_ms: the job's step.
    """
    usable = [v for v in views if v.device and v.steps]
    if not usable or not step_ms:
        return None
    chosen = usable[:: max(-(-len(usable) // MOST_RANKS), 1)]
    parts = [_of_rank(view) for view in chosen]
    names = sorted({name for part in parts for name in part.groups}, key=lambda n: -_mean(parts, n, "ns"))
    rows = []
    peak = peak_of(chosen[0].trace.meta.device)
    for name in names:
        ms = _mean(parts, name, "ns") / 1e6
        counted, moved = _mean(parts, name, "counted_ns") / 1e6, _mean(parts, name, "moved_ns") / 1e6
        tflops = _mean(parts, name, "flop") / counted / 1e9 if counted > 0.5 * ms else None
        gb_s = _mean(parts, name, "bytes") / moved / 1e6 if moved > 0.5 * ms else None
        share = None
        if peak is not None:
            share = max((100 * tflops / peak.tflops if tflops else 0), (100 * gb_s / peak.gb_s if gb_s else 0)) or None
        rows.append(
            WorkGroup(
                name=name,
                ms_per_step=ms,
                kernels_per_step=_mean(parts, name, "kernels"),
                tflops=tflops,
                gb_s=gb_s,
                peak_pct=share,
                bound=_bound(tflops, gb_s, ms / max(_mean(parts, name, "kernels"), 1.0)),
            )
        )
    work = sum(_mean(parts, name, "flop") for name in names)
    busy = sum(row.ms_per_step for row in rows)
    counted = sum(_mean(parts, name, "counted_ns") for name in names) / 1e6
    products = _mean(parts, MATRIX, "ns") / 1e6
    achieved = work / step_ms / 1e9 if work else None
    return Efficiency(
        device=chosen[0].trace.meta.device,
        peak_tflops=peak.tflops if peak else None,
        peak_gb_s=peak.gb_s if peak else None,
        shapes=any(part.shapes for part in parts),
        tflop_per_step=work / 1e12 if work else None,
        tflops=achieved,
        peak_pct=100 * achieved / peak.tflops if peak and achieved else None,
        counted_pct=100 * counted / busy if busy else 0.0,
        plain_ms=_mean(parts, MATRIX, "plain_ns") / 1e6 if products else 0.0,
        small_kernels=float(np.mean([part.small for part in parts])),
        small_ms=float(np.mean([part.small_ns for part in parts])) / 1e6,
        compiled=any(COMPILED in part.groups for part in parts),
        graphs=any(_replays_graphs(view) for view in chosen),
        groups=rows,
    )


class _Part:
    """Values of one rank, per step."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.small = self.small_ns = 0.0
        self.shapes = False


def _mean(parts: Sequence[_Part], group: str, number: str) -> float:
    return float(np.mean([part.groups[group][number] if group in part.groups else 0.0 for part in parts]))


def _of_rank(view: RankView) -> _Part:
    events, strings = view.trace.events, view.trace.strings
    kernels, operators = operator_of_kernels(view)
    own = _Part()
    length = events.duration[kernels]
    own.small, own.small_ns = (length < SMALL_NS).sum() / view.steps, length[length < SMALL_NS].sum() / view.steps
    known = operators.clip(0)
    table = np.stack(
        (
            events.name[kernels],
            np.where(operators >= 0, events.name[known], -1),
            np.where(operators >= 0, events.shape[known], -1),
        )
    )
    kinds, place, counts = np.unique(table, axis=1, return_inverse=True, return_counts=True)
    time = np.bincount(place.reshape(-1), length, kinds.shape[1])
    calls = _calls(operators, place.reshape(-1), kinds.shape[1])
    convolutions = Convolutions({(strings[o], strings[s]) for _, o, s in kinds.T.tolist() if o >= 0 and s >= 0})
    for (kernel, operator, shape), ns, count, times in zip(
        kinds.T.tolist(), time.tolist(), counts.tolist(), calls.tolist(), strict=True
    ):
        name, what = strings[kernel], strings[operator] if operator >= 0 else ""
        dims = strings[shape] if shape >= 0 else ""
        own.shapes |= bool(dims)
        row = own.groups[group_of(what, name)]
        row["ns"] += ns / view.steps
        row["kernels"] += count / view.steps
        if (work := flop(what, dims) or convolutions.flop(what, dims)) is not None:
            # If a call has several kernels (split-K and its sum), the first one gets its operations.
            row["flop"] += work * times / view.steps
            row["counted_ns"] += ns / view.steps
            if uses_tensor_cores(name) is False:
                row["plain_ns"] += ns / view.steps
        elif group_of(what, name) == MEMORY_BOUND and (size := bytes_of_elementwise(what, name, dims)):
            row["bytes"] += size * count / view.steps
            row["moved_ns"] += ns / view.steps
    return own


def _calls(operators: np.ndarray, place: np.ndarray, kinds: int) -> np.ndarray:
    """Count for each kind the operator calls whose first kernel is of that kind."""
    first = np.zeros(len(operators), bool)
    first[np.unique(operators, return_index=True)[1]] = True
    return np.bincount(place[first & (operators >= 0)], minlength=kinds)


def _bound(tflops: float | None, gb_s: float | None, ms_per_kernel: float) -> str:
    if ms_per_kernel * 1e6 < SMALL_NS:
        return "launch"
    return "math" if tflops else "memory" if gb_s else ""


def _replays_graphs(view: RankView) -> bool:
    return any("GraphLaunch" in view.trace.strings[code] for code in np.unique(view.trace.events.name).tolist())
