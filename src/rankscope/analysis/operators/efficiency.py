"""How well the devices are used: operations and bytes per second compared with their peak, and where their time
goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from rankscope.analysis.operators.bytes import bytes_of_elementwise
from rankscope.analysis.operators.device_peaks import Peak, peak_of
from rankscope.analysis.operators.groups import COMPILED, MATRIX, MEMORY_BOUND, group_of, uses_tensor_cores
from rankscope.analysis.operators.kinds import KernelKind, kernel_kinds, rate
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
    usable = [view for view in views if view.device and view.steps]
    if not usable or not step_ms:
        return None
    chosen = usable[:: max(-(-len(usable) // MOST_RANKS), 1)]
    ranks = [_of_rank(view) for view in chosen]
    means = {name: _mean(ranks, name) for name in {name for rank in ranks for name in rank.groups}}
    groups = dict(sorted(means.items(), key=lambda item: (-item[1].ns, item[0])))
    device = chosen[0].trace.meta.device
    peak = peak_of(device)
    flop = sum(group.flop for group in groups.values())
    busy_ms = sum(group.ns / 1e6 for group in groups.values())
    counted_ms = sum(group.counted_ns for group in groups.values()) / 1e6
    tflops = flop / step_ms / 1e9 if flop else None
    return Efficiency(
        device=device,
        peak_tflops=peak.tflops if peak else None,
        peak_gb_s=peak.gb_s if peak else None,
        shapes=any(rank.shapes for rank in ranks),
        tflop_per_step=flop / 1e12 if flop else None,
        tflops=tflops,
        peak_pct=100 * tflops / peak.tflops if peak and tflops else None,
        counted_pct=100 * counted_ms / busy_ms if busy_ms else 0.0,
        plain_ms=groups[MATRIX].plain_ns / 1e6 if MATRIX in groups else 0.0,
        small_kernels=float(np.mean([rank.small for rank in ranks])),
        small_ms=float(np.mean([rank.small_ns for rank in ranks])) / 1e6,
        compiled=COMPILED in groups,
        graphs=any(_replays_graphs(view) for view in chosen),
        groups=[_row(name, group, peak) for name, group in groups.items()],
    )


@dataclass(slots=True)
class _Group:
    """Kernels of one group of work, per step."""

    ns: float = 0.0
    kernels: float = 0.0
    flop: float = 0.0
    counted_ns: float = 0.0
    """Time of the kernels whose operations ``flop`` contains."""
    plain_ns: float = 0.0
    """Part of it in kernels without tensor cores."""
    bytes: float = 0.0
    moved_ns: float = 0.0
    """Time of the kernels whose traffic ``bytes`` contains."""

    def add(self, kind: KernelKind, steps: int, *, memory_bound: bool) -> None:
        """Add a kind of kernels of a rank that recorded this many steps."""
        self.ns += kind.ns / steps
        self.kernels += kind.kernels / steps
        if kind.flop is not None:
            self.flop += kind.flop * kind.calls / steps
            self.counted_ns += kind.ns / steps
            if uses_tensor_cores(kind.kernel) is False:
                self.plain_ns += kind.ns / steps
        elif memory_bound and (size := bytes_of_elementwise(kind.operator, kind.kernel, kind.shapes)):
            self.bytes += size * kind.kernels / steps
            self.moved_ns += kind.ns / steps


@dataclass(slots=True)
class _Rank:
    """Values of one rank, per step."""

    small: float
    """Number of kernels shorter than :data:`SMALL_NS`."""
    small_ns: float
    shapes: bool
    """Whether shapes were recorded."""
    groups: dict[str, _Group] = field(default_factory=lambda: defaultdict(_Group))


def _of_rank(view: RankView) -> _Rank:
    kernels, operators = operator_of_kernels(view)
    kinds = kernel_kinds(view, kernels, operators)
    length = view.trace.events.duration[kernels]
    small = length[length < SMALL_NS]
    rank = _Rank(len(small) / view.steps, small.sum() / view.steps, shapes=any(kind.shapes for kind in kinds))
    for kind in kinds:
        name = group_of(kind.operator, kind.kernel)
        rank.groups[name].add(kind, view.steps, memory_bound=name == MEMORY_BOUND)
    return rank


def _mean(ranks: Sequence[_Rank], name: str) -> _Group:
    """Return the mean of a group over the ranks; a rank without it counts as zero."""
    groups = [rank.groups.get(name, _Group()) for rank in ranks]
    return _Group(*(float(np.mean([getattr(group, one.name) for group in groups])) for one in fields(_Group)))


def _row(name: str, group: _Group, peak: Peak | None) -> WorkGroup:
    ms = group.ns / 1e6
    flop_per_ns, gb_s = rate(group.flop, group.counted_ns, group.ns), rate(group.bytes, group.moved_ns, group.ns)
    tflops = None if flop_per_ns is None else flop_per_ns / 1e3
    shares = [100 * tflops / peak.tflops if tflops else 0, 100 * gb_s / peak.gb_s if gb_s else 0] if peak else [0]
    return WorkGroup(
        name=name,
        ms_per_step=ms,
        kernels_per_step=group.kernels,
        tflops=tflops,
        gb_s=gb_s,
        peak_pct=max(shares) or None,
        bound=_bound(tflops, gb_s, ms / max(group.kernels, 1.0)),
    )


def _bound(tflops: float | None, gb_s: float | None, ms_per_kernel: float) -> str:
    if ms_per_kernel * 1e6 < SMALL_NS:
        return "launch"
    return "math" if tflops else "memory" if gb_s else ""


def _replays_graphs(view: RankView) -> bool:
    return view.has_name(lambda name: "GraphLaunch" in name)
