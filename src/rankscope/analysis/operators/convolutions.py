"""Floating-point operations of convolutions, from the shapes of their operators' inputs.

A forward operator shows its input and its weight, and neither stride nor padding. Its backward operator has the
gradient of the output among its inputs: it shows the size of that output, for the forward operator of the same input
and weight, too. With ``[N, Cin, ...]`` in, ``[N, Cout, ...]`` out and a weight of ``[Cout, Cin / groups, ...]`` a
convolution takes two operations for each output element and each weight of one output channel, its backward as many
for the gradient of the weight and as many for that of the input.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import prod

__all__ = ["Convolutions"]

FORWARD = {
    f"aten::{name}"
    for name in (
        *("convolution", "_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "cudnn_convolution"),
        *("cudnn_convolution_relu", "cudnn_convolution_transpose", "miopen_convolution", "_conv_depthwise2d"),
        *("mkldnn_convolution", "thnn_conv2d", "_slow_conv2d_forward", "convolution_overrideable"),
    )
}
BACKWARD = "aten::convolution_backward"
PICTURE = 4
"""Number of channels up to which an input is taken for data, which needs no gradient."""

_Sizes = tuple[int, ...]


class Convolutions:
    """The convolutions of one trace."""

    def __init__(self, calls: Iterable[tuple[str, str]]) -> None:
        """Take the distinct (operator, ``Input Dims``) of the trace."""
        self._outputs: dict[tuple[_Sizes, _Sizes], set[_Sizes]] = {}
        for operator, shapes in calls:
            if operator == BACKWARD and (found := _sizes(shapes, 3)) is not None:
                out, into, weight = found
                self._outputs.setdefault((into, weight), set()).add(out)

    def flop(self, operator: str, shapes: str) -> int | None:
        """Return the operations of one call; None if it is no convolution, or one whose output is not known."""
        if operator == BACKWARD:
            if (found := _sizes(shapes, 3)) is None:
                return None
            out, into, weight = found
            return (1 if into[1] <= PICTURE else 2) * _forward(into, weight, out)
        if operator not in FORWARD or (pair := _sizes(shapes, 2)) is None:
            return None
        outputs = self._outputs.get((pair[0], pair[1]), set())
        return _forward(pair[0], pair[1], next(iter(outputs))) if len(outputs) == 1 else None


def _forward(into: _Sizes, weight: _Sizes, out: _Sizes) -> int:
    """Return the operations of the forward call: of a transposed one each input element meets the weights."""
    turned = weight[0] == into[1] and (weight[0] != out[1] or prod(out[2:]) > prod(into[2:]))
    return 2 * prod(into if turned else out) * prod(weight[1:])


def _sizes(shapes: str, count: int) -> list[_Sizes] | None:
    """Return the first sizes, which have to be those of three to five dimensions; None if they are not."""
    try:
        found = [tuple(map(int, dims)) for dims in json.loads(shapes)[:count]]
    except (ValueError, TypeError):
        return None
    good = len(found) == count and len({len(dims) for dims in found}) == 1 and 3 <= len(found[0]) <= 5
    return found if good and all(size > 0 for dims in found for size in dims) else None
