"""Floating-point operations of matrix products, from the shapes of their operator's inputs.

A product of m x k and k x n takes 2 m n k. Convolutions are in ``convolutions``. Attention is not counted: a trace does
not show whether the mask is causal. So every number here is a lower bound, and is reported with the share of device
time that it covers.
"""

from __future__ import annotations

import json
from math import prod

__all__ = ["flop"]

_LEFT = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_scaled_mm", "aten::_int_mm"), 0),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::_addmm_activation"), 1),
}
"""Operator -> index of its left factor among its inputs; the right one follows."""


def flop(operator: str, shapes: str) -> int | None:
    """Return the operations of one call; None if the operator is not counted or its shapes are unknown.

    Args:
        operator: for instance ``aten::addmm``.
        shapes: its ``Input Dims`` as Kineto writes them, ``[[16], [8, 32], [32, 16], [], []]``.
    """
    place = _LEFT.get(operator)
    if place is None or not shapes:
        return None
    try:
        left, right = json.loads(shapes)[place : place + 2]
        sizes = [*map(int, left), *map(int, right)]
        if len(left) not in (2, 3) or len(left) != len(right) or min(sizes) < 0 or left[-1] != right[-2]:
            return None
        return 2 * prod(int(size) for size in left) * int(right[-1])
    except (ValueError, TypeError, IndexError):
        return None
