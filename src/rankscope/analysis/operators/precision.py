"""Numbers of how many bits a matrix product's kernel multiplies, by its name."""

from __future__ import annotations

import re

__all__ = ["precision_of"]

_NAMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("fp8", re.compile(r"e4m3|e5m2|fp8|^nvjet_(sm\d+_)?[qo]", re.I)),
    ("bf16", re.compile(r"bf16|^nvjet_(sm\d+_)?t", re.I)),
    ("fp16", re.compile(r"h16816|h884|h1688|fp16|(^|_)f16|^nvjet_(sm\d+_)?h", re.I)),
    ("tf32", re.compile(r"tf32|s1688|^nvjet_(sm\d+_)?s", re.I)),
)
"""The first that matches is used. Kernels for fp8 also name the type of their result, and s1688 is an instruction for
numbers of 16 bits as well."""


def precision_of(kernel: str) -> str:
    """Return ``fp8``, ``tf32``, ``bf16`` or ``fp16``; empty if the name does not show it."""
    return next((name for name, pattern in _NAMES if pattern.search(kernel)), "")
