"""Bytes that a kernel moves at least, from the shapes of its operator's inputs and the element type in its name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import prod

from rankscope.analysis.operators.flops import factors

__all__ = ["bytes_of_elementwise", "bytes_of_product"]

_ELEMENT = re.compile(
    r"(?P<two>bfloat16|half\b|bf16|__half|fp16)|(?P<four>\bfloat\b|float32)|(?P<eight>\bdouble\b)", re.I
)
_PRODUCT = re.compile(
    r"nvjet_(?:sm\d+_)?(?P<letter>[thsdq])|(?P<two>bf16|f16|half|[sh]\d*16816)|(?P<four>sgemm|tf32|f32)"
)
"""Of the factors of a product. The first letter in a name of nvjet is the type of its first factor."""
_LETTERS = {"t": 2, "h": 2, "s": 4, "d": 8, "q": 1}
_PART = re.compile(r"embedding|index|gather|scatter|nll_loss|masked|take|sort|topk|unique")
"""Operators that read only a part of their inputs."""
_READ: dict[str, Callable[[list[int]], int]] = {
    "aten::copy_": lambda sizes: sizes[-1],  # the first input is the output
    **dict.fromkeys(("aten::fill_", "aten::zero_"), lambda _: 0),
}
"""Operator -> elements that it reads, if these are not all of its inputs."""
_CASTS = "unrolled_elementwise_kernel"
"""This kernel converts between types, so its elements are not of one size."""
_SIZES = {"two": 2, "four": 4, "eight": 8}


def bytes_of_elementwise(operator: str, kernel: str, shapes: str) -> float | None:
    """Return the bytes of one call of an element-wise kernel, None if unknown: it reads each input once and writes an
    output as large as the largest. A reduction writes less, so only what it reads counts.

    Args:
        operator: that launched it.
        kernel: its name, which shows the type of its elements.
        shapes: ``Input Dims`` of the operator as Kineto writes them.
    """
    match = _ELEMENT.search(kernel)
    if match is None or not shapes or _PART.search(operator) or _CASTS in kernel:
        return None
    try:
        sizes = [prod(map(int, dims)) for dims in json.loads(shapes) if isinstance(dims, list) and dims]
    except (ValueError, TypeError):
        return None
    if not sizes:
        return None
    written = 0 if "reduce_kernel" in kernel else max(sizes)
    read = _READ.get(operator, sum)(sizes)
    return float(_SIZES[match.lastgroup or "four"] * (read + written))


def bytes_of_product(operator: str, kernel: str, shapes: str) -> float | None:
    """Return the bytes of one call of a matrix product, None if unknown: it reads both factors and writes the result,
    each once and with elements of one size. Arguments as above."""
    found, sizes = _PRODUCT.search(kernel), factors(operator, shapes)
    if found is None or sizes is None:
        return None
    each = _LETTERS[found["letter"]] if found["letter"] else _SIZES[found.lastgroup or "four"]
    left, right = sizes
    return float(each * (prod(left) + prod(right) + prod(left[:-1]) * right[-1]))
