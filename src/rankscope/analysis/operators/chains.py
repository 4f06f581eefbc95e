"""Element-wise kernels that follow each other on a stream: what one fused kernel could do instead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from rankscope.analysis.operators.groups import MEMORY_BOUND, group_of
from rankscope.analysis.operators.work import operator_of_kernels
from rankscope.analysis.rank.view import RankView
from rankscope.records.changes import Chain

__all__ = ["costliest_chain"]

LONGEST = 8
"""Operators of a chain that are named and counted as one. In longer rows the same chains follow each other."""


def costliest_chain(views: Sequence[RankView]) -> Chain | None:
    """Return the chain of different operators that takes most time, by the first rank with a device and steps.

    A chain ends at a kernel of another kind, such as a matrix product, and after :data:`LONGEST` kernels.
    """
    view = next((view for view in views if view.device and view.steps), None)
    if view is None:
        return None
    kernels, operators = operator_of_kernels(view)
    events, strings = view.trace.events, view.trace.strings
    order = np.lexsort((events.start[kernels], events.stream[kernels]))
    ms: dict[tuple[str, ...], float] = defaultdict(float)
    count: dict[tuple[str, ...], int] = defaultdict(int)
    names: list[str] = []
    length, stream = 0.0, -1

    def end() -> None:
        if len(names) > 1:
            ms[tuple(names)] += length
            count[tuple(names)] += 1

    known: dict[tuple[int, int], str] = {}
    for kernel, operator in zip(kernels[order].tolist(), operators[order].tolist(), strict=True):
        key = (int(events.name[operator]) if operator >= 0 else -1, int(events.name[kernel]))
        if key not in known:
            name = strings[key[0]] if operator >= 0 else ""
            known[key] = name if name and group_of(name, strings[key[1]]) == MEMORY_BOUND else ""
        name, here = known[key], int(events.stream[kernel])
        if not name or here != stream or len(names) == LONGEST:
            end()
            names, length, stream = [], 0.0, here
        if name:
            names.append(name)
            length += float(events.duration[kernel])
    end()
    if not ms:
        return None
    most = max(ms, key=lambda chain: ms[chain])
    return Chain(operators=list(most), count=count[most] / view.steps, ms=ms[most] / view.steps / 1e6)
