"""Selection of events that fit: the important classes first, within the first class that does not fit the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.timeline.json_lines import us
from rankscope.trace.columns import Category

__all__ = ["COLLECTIVE", "Choice", "choose", "importance"]

I64 = NDArray[np.int64]

COLLECTIVE = 0
"""Class of the events that are collectives."""

_CLASSES: tuple[tuple[str, tuple[Category, ...]], ...] = (
    ("collectives", ()),
    ("copies, memsets and user annotations", (Category.GPU_MEMCPY, Category.GPU_MEMSET, Category.USER_ANNOTATION)),
    ("kernels", (Category.KERNEL,)),
    ("operators", (Category.CPU_OP,)),
    ("runtime calls", (Category.CUDA_RUNTIME, Category.CUDA_DRIVER, Category.CUDA_SYNC)),
    ("other events", (Category.GPU_USER_ANNOTATION, Category.OVERHEAD, Category.OTHER)),
    ("Python functions", (Category.PYTHON_FUNCTION,)),
)


@dataclass(slots=True)
class Choice:
    """Per part the events to keep, an upper bound of their size, and a description of what was removed."""

    keep: list[NDArray[np.bool_]]
    bytes: int
    left_out: list[str]


def importance(category: NDArray[np.int8], collective: I64) -> NDArray[np.int8]:
    """Return the class of each event; lower numbers are more important.

    Args:
        category: of all events.
        collective: indices of those that are collectives.
    """
    table = np.zeros(max(Category) + 1, np.int8)
    for number, (_, members) in enumerate(_CLASSES):
        table[list(members)] = number
    classes = table[category]
    classes[collective] = COLLECTIVE
    return np.asarray(classes)


def choose(classes: Sequence[NDArray[np.int8]], length: Sequence[I64], cost: Sequence[I64], room: int) -> Choice:
    """Choose among the events of all parts together.

    Args:
        classes: importance of each event, per part.
        length: duration in ns.
        cost: upper bound of its text in bytes.
        room: available bytes.
    """
    of, long, text = (np.concatenate(list(c)) if c else np.empty(0, np.int64) for c in (classes, length, cost))
    keep = np.zeros(len(of), np.bool_)
    left_out: list[str] = []
    used = 0
    for number, (name, _) in enumerate(_CLASSES):
        own = np.flatnonzero(of == number)
        total = int(text[own].sum())
        if used + total <= room and not left_out:
            keep[own] = True
            used += total
        elif len(own):
            order = own[np.argsort(-long[own], kind="stable")]
            fits = order[: int(np.searchsorted(np.cumsum(text[order]), room - used, side="right"))]
            if left_out:
                fits = fits[:0]
            keep[fits] = True
            used += int(text[fits].sum())
            shorter = f", those shorter than {us(int(long[fits[-1]]))} us" if len(fits) else ""
            left_out.append(f"{len(own) - len(fits):,} of {len(own):,} {name}{shorter}")
    ends = np.cumsum([len(c) for c in classes])
    parts = np.split(keep, ends[:-1]) if len(ends) else []
    return Choice([np.asarray(p) for p in parts], used, left_out)
