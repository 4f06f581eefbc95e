"""Origin of kernels: for each name, the operator that launches most of it, its shapes, the rate, and the module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.operators.bytes import bytes_of_elementwise, bytes_of_product
from rankscope.analysis.operators.groups import MEMORY_BOUND, group_of
from rankscope.analysis.operators.kinds import KernelKind, kernel_kinds, rate
from rankscope.analysis.operators.work import operator_of_kernels
from rankscope.analysis.rank.modules import modules_of
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
    module: str | None = None
    """The module in whose calls most of their time is launched; None if no kernel was launched in one."""


def origins(views: Sequence[RankView]) -> dict[str, Origin]:
    """Return name of a kernel -> its origin, over the recorded steps of these ranks; without those of no operator."""
    by_name: dict[str, _Kernels] = defaultdict(_Kernels)
    for view in views:
        kernels, operators = operator_of_kernels(view)
        known = operators >= 0
        for kind in kernel_kinds(view, kernels[known], operators[known]):
            by_name[kind.kernel].add(kind)
        if len(view.trace.python):
            _add_modules(view, kernels[known], by_name)
    return {name: kernels.origin() for name, kernels in by_name.items()}


def _add_modules(view: RankView, kernels: NDArray[np.int64], by_name: dict[str, _Kernels]) -> None:
    events = view.trace.events
    module, modules = modules_of(view, events.launch[kernels].astype(np.int64))
    inside = module >= 0
    pairs, place = np.unique(np.stack((events.name[kernels], module))[:, inside], axis=1, return_inverse=True)
    ns = np.bincount(place.reshape(-1), events.duration[kernels[inside]], pairs.shape[1])
    for code, own, time in zip(*pairs.tolist(), ns.tolist(), strict=True):
        by_name[view.trace.strings[code]].modules[modules[own]] += time


@dataclass(slots=True)
class _Kernels:
    """Sums over the kernels of one name, on all ranks."""

    ns: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """Operator and shapes -> device time."""
    flop: float = 0.0
    counted_ns: float = 0.0
    """Time of the kernels whose operations ``flop`` contains."""
    bytes: float = 0.0
    moved_ns: float = 0.0
    """Time of the kernels whose traffic ``bytes`` contains."""
    modules: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Module -> device time."""

    def add(self, kind: KernelKind) -> None:
        self.ns[kind.operator, kind.shapes] += kind.ns
        if not kind.alone:
            return
        if kind.flop is not None:
            self.flop += kind.flop * float(kind.kernels)
            self.counted_ns += kind.ns
        if (moved := _bytes(kind)) is not None:
            self.bytes += moved * float(kind.kernels)
            self.moved_ns += kind.ns

    def origin(self) -> Origin:
        by_operator: dict[str, float] = defaultdict(float)
        for (operator, _), ns in self.ns.items():
            by_operator[operator] += ns
        longest = max(by_operator, key=lambda operator: by_operator[operator])
        shapes = max((shapes for operator, shapes in self.ns if operator == longest), key=lambda s: self.ns[longest, s])
        whole_ns = sum(by_operator.values())
        flop_per_ns = rate(self.flop, self.counted_ns, whole_ns)
        return Origin(
            operator=longest,
            shapes=shapes or None,
            tflops=None if flop_per_ns is None else flop_per_ns / 1e3,
            gb_s=rate(self.bytes, self.moved_ns, whole_ns),
            module=max(self.modules, key=lambda module: self.modules[module], default=None),
        )


def _bytes(kind: KernelKind) -> float | None:
    """Return what one call moves at least; None for anything but products and element-wise kernels."""
    if group_of(kind.operator, kind.kernel) == MEMORY_BOUND:
        return bytes_of_elementwise(kind.operator, kind.kernel, kind.shapes)
    return bytes_of_product(kind.operator, kind.kernel, kind.shapes)
