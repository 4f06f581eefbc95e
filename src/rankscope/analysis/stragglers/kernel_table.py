"""The compute kernels of all ranks as columns, and which of them are the same work.

Two kernels are the same work on two ranks if their name, their grid and the shapes of the launching operator agree, and
if each is the n-th such kernel of its step. Kernels without recorded sizes are taken to be the same work only on ranks
that make the same calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.steps import JobSteps
from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.operators import launching_operators
from rankscope.analysis.rank.view import RankView
from rankscope.trace.names import Kind

__all__ = ["KernelTable", "kernel_table", "kernels_of"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KernelTable:
    """One row for each compute kernel that a recorded step launched, by rank and then in order of launches."""

    ranks: int
    numbers: I64
    """The job's numbers of all steps, shape (S,)."""
    rank: I64
    """Column of the rank."""
    step: I64
    """Index into ``numbers``."""
    kind: I64
    """Integer for name, grid and shapes."""
    pair: I64
    """Integer for the kind and its ordinal number within the step."""
    length: I64
    """Duration in ns."""
    alone: NDArray[np.bool_]
    """Whether it did not overlap communication of its own rank. Kernels that overlap a collective, even one that only
    waits for a peer, took 1.3 to 1.6 times as long (measured)."""
    beside: F64
    """Share of its duration that overlapped communication of its own rank."""
    launched: I64
    """Start of its launch, in ns of the rank's own clock."""

    def of(self, column: int) -> slice:
        """Return the rows of one rank."""
        first, end = np.searchsorted(self.rank, [column, column + 1]).tolist()
        return slice(first, end)


def kernel_table(views: Sequence[RankView], peers: Sequence[Sequence[int]], steps: JobSteps) -> KernelTable:
    """Collect the kernels of all ranks.

    Args:
        views: one view a rank.
        peers: per rank the columns of the ranks that make the same calls.
        steps: the job's steps.
    """
    rows = [kernels_of(view) for view in views]
    known: dict[tuple[object, ...], int] = {}
    teams = [min(team, default=-1 - column) for column, team in enumerate(peers)]
    both = list(zip(views, rows, strict=True))
    kind = np.concatenate([_keys(*pair, team, known) for pair, team in zip(both, teams, strict=True)])
    rank = np.repeat(np.arange(len(views)), [len(own) for own in rows])
    number = np.concatenate([steps.of_rank(v, c)[v.trace.events.step[own]] for c, (v, own) in enumerate(both)])
    numbers, step = np.unique(number, return_inverse=True)
    length = np.concatenate([v.trace.events.duration[own] for v, own in both])
    inside = np.concatenate([_inside(v, own) for v, own in both])
    return KernelTable(
        ranks=len(views),
        numbers=numbers,
        rank=rank,
        step=step.astype(np.int64),
        kind=kind,
        pair=_pairs(rank, step, kind),
        length=length,
        alone=inside == 0,
        beside=inside / np.maximum(length, 1),
        launched=np.concatenate([v.trace.events.start[v.trace.events.launch[own]] for v, own in both]),
    )


def kernels_of(view: RankView) -> I64:
    """Return the kernels that a recorded step launched, in order of their launches: a rank's rows of the table."""
    events = view.trace.events
    own = np.flatnonzero((view.kind == Kind.COMPUTE) & (events.stream >= 0) & (events.step >= 0) & (events.launch >= 0))
    return own[np.argsort(events.launch[own], kind="stable")]


def _keys(view: RankView, rows: I64, team: int, known: dict[tuple[object, ...], int]) -> I64:
    """Return an integer for each kernel's name, grid and operator shapes, equal on all ranks; without sizes, per team
    only."""
    events, strings = view.trace.events, view.trace.strings
    size = len(strings) + 1  # one number of three, as columns of a table are sorted many times slower
    shapes = (events.shape[rows] + 1) * np.int64(size) + _operator_shape(view, rows) + 1
    unique, inverse = np.unique(events.name[rows] * np.int64(size) ** 2 + shapes, return_inverse=True)
    table = np.stack((unique // size**2, unique // size % size - 1, unique % size - 1), axis=1)
    words: list[tuple[object, ...]] = [
        tuple(strings[i] if i >= 0 else "" for i in row) if max(row[1:]) >= 0 else (strings[row[0]], team)
        for row in table.tolist()
    ]
    codes = np.array([known.setdefault(word, len(known)) for word in words], np.int64)
    return codes[inverse.reshape(-1)] if len(rows) else np.empty(0, np.int64)


def _operator_shape(view: RankView, rows: I64) -> I64:
    """Input shapes of the operator that launched each kernel, as an index into the strings; -1 where not recorded."""
    operators = launching_operators(view, rows, with_shapes=True)
    return np.where(operators >= 0, view.trace.events.shape[operators], -1).astype(np.int64)


def _inside(view: RankView, rows: I64) -> I64:
    """Overlap of each kernel with communication of its own rank, in ns."""
    events = view.trace.events
    return intervals.cover(view.comm, events.start[rows], events.end[rows])


def _pairs(rank: I64, step: I64, key: I64) -> I64:
    """Return an integer for each key and its ordinal number within the step."""
    if not len(key):
        return np.empty(0, np.int64)
    order = np.lexsort((np.arange(len(key)), key, step, rank))
    together = np.stack((rank[order], step[order], key[order]))
    first = np.ones(len(order), np.bool_)
    first[1:] = (together[:, 1:] != together[:, :-1]).any(axis=0)
    begun = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    ordinal = np.empty(len(order), np.int64)
    ordinal[order] = np.arange(len(order)) - begun
    # Combined into one number, because sorting rows of a table takes many times as long.
    both = key * (int(ordinal.max()) + 1) + ordinal
    return np.asarray(np.unique(both, return_inverse=True)[1].reshape(-1), np.int64)
