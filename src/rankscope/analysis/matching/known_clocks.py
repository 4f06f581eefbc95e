"""Clock offsets between ranks, from the calls that have been matched already.

Messages determine clock offsets badly, because a kernel that sends and receives ends after its own neighbours.
Collectives determine them well and are matched first. Ranks without a common collective are joined through others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.pair_clocks import CLEAN_STEPS, SMOOTH, running_median
from rankscope.analysis.rank.view import RankView

__all__ = ["KnownClocks"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

Ahead = Callable[[I64], F64]
"""Maps times of a rank, in ns, to the offsets that convert them to another rank's clock."""


class KnownClocks:
    """Clock offsets of pairs of ranks (columns), determined by matched calls directly or through other ranks."""

    def __init__(self, views: Sequence[RankView]) -> None:
        self._views = views
        self._apart: dict[tuple[int, int], list[tuple[I64, F64]]] = defaultdict(list)
        self._curves: dict[tuple[int, int], tuple[I64, F64]] = {}
        self._near: dict[int, list[int]] = {}

    def learn(self, columns: Sequence[int], table: I64) -> None:
        """Add calls whose members end at the same time. ``table`` is as in ``exchanges.Block``."""
        ends = np.zeros(table.shape, np.int64)
        for place, column in enumerate(columns):
            trace = self._views[column].trace
            has = table[:, place] >= 0
            ends[has, place] = trace.events.end[trace.collectives.event[table[has, place]]]
        have = table >= 0
        most = int(np.argmax(have.sum(axis=0)))  # the member with most records is the reference for the others
        for place, column in enumerate(columns):
            both = have[:, most] & have[:, place]
            if place == most or not both.any():
                continue
            apart = (ends[both, most] - ends[both, place]).astype(np.float64)
            self._apart[columns[most], column].append((ends[both, place], apart))
            self._apart[column, columns[most]].append((ends[both, most], -apart))
        self._curves, self._near = {}, {}

    def ahead(self, one: int, other: int, times: I64) -> F64 | None:
        """Return what to add to times of ``other`` to convert them to the clock of ``one``, in ns; None where it is
        unknown."""
        total = np.zeros(len(times))
        path = self._path(one, other)
        if path is None:
            return None
        for here, there in path:  # from the clock of `other` towards that of `one`
            at, apart = self._curve(here, there)
            total += np.interp((times + total.astype(np.int64)).astype(np.float64), at.astype(np.float64), apart)
        return total

    def _path(self, one: int, other: int) -> list[tuple[int, int]] | None:
        """Return the shortest path from ``other`` to ``one`` as (nearer, farther) pairs, ordered from ``other``."""
        if not self._near:
            for (a, b), several in self._apart.items():
                if sum(len(at) for at, _ in several) >= CLEAN_STEPS:
                    self._near.setdefault(b, []).append(a)
        before: dict[int, int] = {other: other}
        queue = [other]
        while queue and one not in before:
            here = queue.pop(0)
            for nearer in self._near.get(here, ()):
                if nearer not in before:
                    before[nearer] = here
                    queue.append(nearer)
        if one not in before:
            return None
        path, here = [], one
        while here != other:
            path.append((here, before[here]))
            here = before[here]
        return path[::-1]

    def _curve(self, one: int, other: int) -> tuple[I64, F64]:
        if (one, other) not in self._curves:
            at = np.concatenate([a for a, _ in self._apart[one, other]])
            apart = np.concatenate([d for _, d in self._apart[one, other]])
            order = np.argsort(at, kind="stable")
            self._curves[one, other] = at[order], running_median(apart[order], SMOOTH)
        return self._curves[one, other]
