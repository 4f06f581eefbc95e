"""Kernels that take longer while NCCL's kernels run on the same device, because both need its processors and memory.

Only kernels of one name, grid and input shape are compared with each other, those that ran beside a call with those
that ran beside none. Whether the difference is real is judged by its scatter over the kinds of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.faster import gain_ms, shorter_by
from rankscope.analysis.gains.work_gains import less_device_work, priced
from rankscope.analysis.rank.operators import launching_operators
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.stragglers.kernel_table import KernelTable, kernel_table, kernels_of
from rankscope.analysis.stragglers.statistics import CONFIDENCE
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.analysis.windows.result import once_per_window
from rankscope.records.changes import BesideCalls
from rankscope.statistics.medians import medians_by_key
from rankscope.trace.names import Kind

__all__ = ["beside_calls", "undisturbed"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

MOSTLY = 0.5
"""Share of a kernel's length during which a call runs, from which on it counts as beside it."""
FEWEST = 3
"""Least number of kernels of a kind, alone and beside calls, for their medians to be compared; and of such kinds."""


@dataclass(frozen=True, slots=True)
class _Slowdown:
    """Of one window."""

    ratio: float
    """Mean over the kinds of length beside calls over length alone, weighted by time, as a logarithm."""
    error: float
    """Half the width of its 95 % interval."""
    lost: float
    """Time that kernels beside calls took longer than alone, ns."""
    operator: str
    """Of the kind that lost most; empty if unknown."""
    shares: list[F64]
    """Per rank: the share of each segment's kernels that they would be shorter by."""


def beside_calls(windows: Sequence[WindowResult]) -> BesideCalls | None:
    """Return by how much kernels are slower beside calls, and the gain if they were not; None if that is not beyond
    scatter. The calls themselves are taken to last as long as now, although they would last longer."""
    found = [known for window in priced(windows) if (known := _measure(window)) is not None]
    if not found:
        return None
    worst = max(found, key=lambda known: known.lost)
    return BesideCalls(
        ratio=float(np.exp(worst.ratio)),
        error=float(np.exp(worst.ratio) * worst.error),
        operator=worst.operator,
        high_ms=gain_ms(windows, undisturbed),
    )


def undisturbed(window: WindowResult, work: F64) -> F64:
    """Return the work per edge if kernels beside calls took as long as alone."""
    assert window.replay is not None
    known = _measure(window)
    return work if known is None else less_device_work(window.replay, work, known.shares)


@once_per_window
def _measure(window: WindowResult) -> _Slowdown | None:
    if not all(view.device for view in window.views) or not any(_runs_nccl(view) for view in window.views):
        return None
    table = kernel_table(window.views, window.plan.peers, window.waits.steps)
    kinds = int(table.kind.max(initial=-1)) + 1
    beside = table.beside > MOSTLY
    usual, count = _medians(table, table.alone, kinds)
    slower, times = _medians(table, beside, kinds)
    compared = (count >= FEWEST) & (times >= FEWEST) & _sized(window, table, kinds)
    if compared.sum() < FEWEST:
        return None
    log = np.log(slower[compared] / usual[compared])
    weight = (usual * times)[compared]
    weight /= weight.sum()
    ratio = float(weight @ log)
    # the scatter of a weighted mean, by its effective number of kinds
    square = float(weight @ weight)
    error = CONFIDENCE * float(np.sqrt(float(weight**2 @ (log - ratio) ** 2) / max(1.0 - square, 1e-9)))
    if ratio - error <= 0:
        return None
    lost = np.where(compared, (slower - usual) * times, 0.0)
    operator = _operator(window, table, int(lost.argmax()))
    shares = _shares(window, table, np.where(compared, usual, np.nan), ratio)
    return _Slowdown(ratio, error, float(lost.sum()), operator, shares)


def _shares(window: WindowResult, table: KernelTable, alone: F64, ratio: float) -> list[F64]:
    """Return per rank by which share each segment's kernels would be shorter.

    Args:
        window: whose kernels these are.
        table: its kernels.
        alone: kind of kernel -> median length of those that ran alone, ns; NaN if unknown.
        ratio: the logarithm by which kernels of other kinds are longer beside calls.
    """
    shares, plan = [], window.plan
    for column in range(len(window.views)):
        rows = table.of(column)
        length = table.length[rows].astype(np.float64)
        usual, beside = alone[table.kind[rows]], table.beside[rows]
        slower = beside * (1.0 - np.exp(-ratio)) * length  # of kinds that never ran alone
        less = np.where(beside > 0, np.where(np.isnan(usual), slower, length - usual), 0.0)
        place = plan.segment_of(column, table.launched[rows])
        shares.append(shorter_by((place, less, np.bincount(place, length, plan.size).astype(np.float64))))
    return shares


def _medians(table: KernelTable, chosen: NDArray[np.bool_], kinds: int) -> tuple[F64, I64]:
    """Return the median length of the chosen kernels of each kind, NaN without any, and their number."""
    rows = chosen & (table.length > 0)
    kind, length = table.kind[rows], table.length[rows].astype(np.float64)
    return medians_by_key(kind, length, kinds), np.bincount(kind, minlength=kinds)


def _sized(window: WindowResult, table: KernelTable, kinds: int) -> NDArray[np.bool_]:
    """Return of which kinds the shapes of the operator's inputs are known: only those surely do equal work."""
    known = np.zeros(kinds, np.bool_)
    for column, view in enumerate(window.views):
        operators = launching_operators(view, kernels_of(view), with_shapes=True)
        known[table.kind[table.of(column)][operators >= 0]] = True
    return known


def _operator(window: WindowResult, table: KernelTable, kind: int) -> str:
    """Return the operator that launches kernels of this kind; empty if unknown."""
    for column, view in enumerate(window.views):
        rows = kernels_of(view)[table.kind[table.of(column)] == kind]
        operators = launching_operators(view, rows[:1], with_shapes=True)
        if len(operators) and operators[0] >= 0:
            return str(view.trace.strings[view.trace.events.name[operators[0]]])
    return ""


def _runs_nccl(view: RankView) -> bool:
    """Return whether it runs kernels of NCCL (RCCL): calls of other libraries, or of the host, have other settings."""
    named = view.named(lambda name: "ccl" in name.lower())
    return bool((named & (view.kind == Kind.COMMUNICATION) & (view.trace.events.stream >= 0)).any())
