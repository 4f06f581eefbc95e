"""Origin of kernels: for each name, the operator that launches most of it, the operator's shapes, and the rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.analysis.operators.bytes import bytes_of_elementwise, bytes_of_product
from rankscope.analysis.operators.convolutions import Convolutions
from rankscope.analysis.operators.flops import flop
from rankscope.analysis.operators.groups import MEMORY_BOUND, group_of
from rankscope.analysis.operators.work import operator_of_kernels
from rankscope.analysis.rank.view import RankView

__all__ = ["Origin", "origins"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of the kernels of one name."""

    operator: str
    """The operator whose kernels of this name take the most time."""
    shapes: str | None
    """Input dims of that operator with the most time; None if none were recorded."""
    tflops: float | None
    """Rate over all of the kernels, 10^12 operations a second; None unless most of their time can be counted."""
    gb_s: float | None = None
    """10^9 bytes a second that they move at least; None as above."""


def origins(views: Sequence[RankView]) -> dict[str, Origin]:
    """Return name of a kernel -> its origin, over the recorded steps of these ranks; without those of no operator."""
    time: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    work: dict[str, float] = defaultdict(float)
    counted: dict[str, float] = defaultdict(float)
    size: dict[str, float] = defaultdict(float)
    moved: dict[str, float] = defaultdict(float)
    for view in views:
        events, strings = view.trace.events, view.trace.strings
        kernels, operators = operator_of_kernels(view)
        kernels, operators = kernels[operators >= 0], operators[operators >= 0]
        if not len(kernels):
            continue
        table = np.stack((events.name[kernels], events.name[operators], events.shape[operators]))
        kinds, place = np.unique(table, axis=1, return_inverse=True)
        place = place.reshape(-1)
        length = np.bincount(place, events.duration[kernels])
        # Of a call with several kernels it is not known which of them does how much of the work.
        _, call, often = np.unique(operators, return_inverse=True, return_counts=True)
        alone = np.bincount(place, often[call.reshape(-1)] == 1)
        names = [(strings[k], strings[o], strings[s] if s >= 0 else "") for k, o, s in kinds.T.tolist()]
        convolutions = Convolutions({(operator, shapes) for _, operator, shapes in names})
        count = np.bincount(place)
        for (kernel, operator, shapes), ns, calls, single in zip(names, length, count, alone, strict=True):
            time[kernel][operator, shapes] += float(ns)
            each = flop(operator, shapes) or convolutions.flop(operator, shapes)
            if each is not None and calls == single:
                work[kernel] += each * float(calls)
                counted[kernel] += float(ns)
            if (least := _bytes(operator, kernel, shapes)) is not None and calls == single:
                size[kernel] += least * float(calls)
                moved[kernel] += float(ns)
    found = {}
    for kernel, parts in time.items():
        whole: dict[str, float] = defaultdict(float)
        for (operator, _), ns in parts.items():
            whole[operator] += ns
        most = max(whole, key=lambda operator: whole[operator])
        shapes = max((s for o, s in parts if o == most), key=lambda s: parts[most, s])
        half = 0.5 * sum(whole.values())
        rate = work[kernel] / counted[kernel] / 1e3 if counted[kernel] > half else None
        found[kernel] = Origin(
            most, shapes or None, rate, size[kernel] / moved[kernel] if moved[kernel] > half else None
        )
    return found


def _bytes(operator: str, kernel: str, shapes: str) -> float | None:
    """Return what one call moves at least; None for anything but products and element-wise kernels."""
    if group_of(operator, kernel) == MEMORY_BOUND:
        return bytes_of_elementwise(operator, kernel, shapes)
    return bytes_of_product(operator, kernel, shapes)
