"""Kinds of kernels of one rank: kernels of one name that one operator launches with inputs of one shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.operators.convolutions import Convolutions
from rankscope.analysis.operators.flops import flop
from rankscope.analysis.operators.work import I64
from rankscope.analysis.rank.view import RankView

__all__ = ["KernelKind", "kernel_kinds", "rate"]

COVERED = 0.5
"""A rate is stated if more than this share of the kernels' time can be counted."""


@dataclass(frozen=True, slots=True)
class KernelKind:
    """One kind of kernels, over the recorded steps."""

    kernel: str
    """Name of the kernels."""
    operator: str
    """Name of the operator that launched them; empty if it is not known."""
    shapes: str
    """Its ``Input Dims``; empty if they were not recorded."""
    kernels: int
    """Number of kernels."""
    ns: float
    """Their device time."""
    calls: int
    """Number of operator calls of which one of them is the first kernel."""
    alone: bool
    """Whether each of them is the only kernel of its call. Of a call with several kernels it is not known which of them
    does how much of the work."""
    flop: int | None
    """Operations of one call of the operator; None if they are not known."""


def kernel_kinds(view: RankView, kernels: I64, operators: I64) -> list[KernelKind]:
    """Group kernels by name, operator and shapes.

    Args:
        view: the rank.
        kernels: rows of its events.
        operators: for each of them the row of the operator that launched it, -1 if unknown
            (:func:`rankscope.analysis.operators.work.operator_of_kernels`).
    """
    if not len(kernels):
        return []
    events, strings = view.trace.events, view.trace.strings
    known, row = operators >= 0, operators.clip(0)
    operator, shape = np.where(known, events.name[row], -1), np.where(known, events.shape[row], -1)
    codes, kind, counts = np.unique(
        np.stack((events.name[kernels], operator, shape)), axis=1, return_inverse=True, return_counts=True
    )
    kind = kind.reshape(-1)
    _, first, call, kernels_of_call = np.unique(operators, return_index=True, return_inverse=True, return_counts=True)
    is_first = np.zeros(len(operators), bool)
    is_first[first] = True
    calls = np.bincount(kind[is_first & known], minlength=len(counts))
    alone = np.bincount(kind, kernels_of_call[call.reshape(-1)] == 1, len(counts)) == counts
    ns = np.bincount(kind, events.duration[kernels], len(counts))
    names = [(strings[k], strings[o] if o >= 0 else "", strings[s] if s >= 0 else "") for k, o, s in codes.T.tolist()]
    convolutions = Convolutions({(launcher, shapes) for _, launcher, shapes in names})
    kinds = []
    for (kernel, launcher, shapes), *numbers in zip(names, counts, ns, calls, alone, strict=True):
        count, time, first_of, single = (number.item() for number in numbers)
        work = flop(launcher, shapes) or convolutions.flop(launcher, shapes)
        kinds.append(KernelKind(kernel, launcher, shapes, count, time, first_of, single, work))
    return kinds


def rate(amount: float, counted_ns: float, whole_ns: float) -> float | None:
    """Return operations or bytes per nanosecond; None unless most of the kernels' time can be counted.

    Args:
        amount: of the kernels that can be counted.
        counted_ns: their time.
        whole_ns: time of all of the kernels.
    """
    return amount / counted_ns if counted_ns > COVERED * whole_ns else None
