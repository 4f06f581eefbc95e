"""Floating-point operations of matrix products, from the shapes of their operator's inputs.

A product of m x k and k x n takes 2 m n k. Convolutions are in ``convolutions``. Attention is not counted: a trace does
not show whether the mask is causal. So every number here is a lower bound, and is reported with the share of device
time that it covers.
"""

from __future__ import annotations

import json
from math import prod

__all__ = ["factors", "flop"]

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
    sizes = factors(operator, shapes)
    return None if sizes is None else 2 * prod(sizes[0]) * sizes[1][-1]


def factors(operator: str, shapes: str) -> tuple[list[int], list[int]] | None:
    """Return the sizes of both factors of a matrix product; None if it is none, or if they are unknown. Arguments as
    of :func:`flop`."""
    place = _LEFT.get(operator)
    if place is None or not shapes:
        return None
    try:
        left, right = ([int(size) for size in dims] for dims in json.loads(shapes)[place : place + 2])
        known = len(left) in (2, 3) and len(left) == len(right) and min(left + right) >= 0 and left[-1] == right[-2]
        return (left, right) if known else None
    except (ValueError, TypeError, IndexError):
        return None
