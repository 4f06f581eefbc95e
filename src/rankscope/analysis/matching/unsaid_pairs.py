"""Find which sends and receives belong together where the traces name no peer, by the ends of their kernels.

The two kernels of a message end together: on NVLink the difference of their ends scattered by 0.1 to 0.4 us over the
steps (two H100). Other kernels follow each other after work, whose time scatters by several microseconds. Every step
runs the same program, so that a position in it (the third such kernel of a rank's step) has one partner. Where each
rank runs messages on several streams, a stream is compared with a stream: two kernels of one rank may end together,
too, but not in all of its micro-batches.

Nothing is assumed of ranks, order and clocks: the pairing counts only if it is the only one that pairs all kernels.
Messages through a buffer, which end at the sender first, fail this test, and so do rings.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.pair_clocks import ENDS_NS
from rankscope.analysis.rank.view import RankView

__all__ = ["pair_by_ends"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

FEWEST_STEPS = 4
"""Of the scatter over the steps, offset and drift of the clocks take two degrees of freedom."""
MOST_POSITIONS = 4096
"""Of all ranks of a group together. The scatter of each with each takes 128 MB."""
UNLUCKY = 0.01
"""Probability with which chance alone makes a pair scatter too much to be accepted."""
RESOLUTION_NS = 400.0
"""Scatter of differences between times in whole microseconds."""


def pair_by_ends(views: Sequence[RankView], members: dict[int, I64]) -> dict[tuple[int, int], I64]:
    """Pair the kernels of a group, each with one of another rank.

    Args:
        views: the ranks of the window.
        members: column -> rows of its calls in this group.

    Returns:
        Two columns, the lower first -> rows of their common calls, shape (calls, 2), in order of time; empty if the
        kernels of some rank cannot be paired, or in more than one way.
    """
    tables = _in_steps(views, members)
    if not tables or sum(rows.shape[1] for rows in tables.values()) > MOST_POSITIONS:
        return {}
    ends = {c: _ends(views[c], rows) for c, rows in tables.items()}
    scatter, apart = _compared(ends)
    steps = len(next(iter(ends.values())))
    partner = _by_streams(_streams(views, tables), scatter, apart, steps)
    if partner is None:
        partner = _only_pairing(_possible(scatter, np.full(len(scatter), steps - 2)))
    if partner is None:
        return {}
    column = np.repeat(list(tables), [rows.shape[1] for rows in tables.values()])
    place = np.concatenate([np.arange(rows.shape[1]) for rows in tables.values()])
    found: dict[tuple[int, int], I64] = {}
    for one, other in sorted(set(zip(column.tolist(), column[partner].tolist(), strict=True))):
        if one < other:
            mine = np.flatnonzero((column == one) & (column[partner] == other))
            if not _one_offset(apart[mine, partner[mine]]):
                return {}
            sides = tables[one][:, place[mine]], tables[other][:, place[partner[mine]]]
            rows = np.stack([side.ravel() for side in sides], axis=1)
            found[one, other] = rows[np.argsort(rows[:, 0], kind="stable")]
    return found


def _one_offset(apart: F64) -> bool:
    """Whether the ends differ by one offset of the two clocks."""
    return bool(np.abs(apart - np.median(apart)).max() <= ENDS_NS)


def _streams(views: Sequence[RankView], tables: dict[int, I64]) -> list[I64]:
    """Return the positions (counted over all ranks) of each stream of each rank; empty where a position changes its
    stream."""
    found, before = list[I64](), 0
    for column, rows in tables.items():
        trace = views[column].trace
        stream = trace.events.stream[trace.collectives.event[rows]]
        if (stream != stream[0]).any():
            return []
        found += [before + np.flatnonzero(stream[0] == own) for own in np.unique(stream[0])]
        before += rows.shape[1]
    return found


def _by_streams(streams: Sequence[I64], scatter: F64, apart: F64, steps: int) -> I64 | None:
    """Return the partner of each position if each stream can be paired with one only, kernel by kernel."""
    together = np.full((len(streams), len(streams)), np.inf)
    for a, one in enumerate(streams):
        for b, other in enumerate(streams):
            if len(one) == len(other) and np.isfinite(scatter[one, other]).all() and _one_offset(apart[one, other]):
                together[a, b] = np.sqrt((scatter[one, other] ** 2).mean())
    freedom = np.array([len(own) * (steps - 2) for own in streams])
    paired = _only_pairing(_possible(together, freedom)) if len(streams) else None
    if paired is None:
        return None
    partner = np.empty(len(scatter), np.int64)
    for one, other in zip(streams, paired.tolist(), strict=True):
        partner[one] = streams[other]
    return partner


def _in_steps(views: Sequence[RankView], members: dict[int, I64]) -> dict[int, I64]:
    """Return column -> rows in the steps that all ranks recorded whole, shape (steps, kernels of a step), in order of
    launches; empty where there are too few."""
    found: dict[int, dict[int, I64]] = {}
    for column, rows in members.items():
        view = views[column]
        events, event = view.trace.events, view.trace.collectives.event[rows]
        launch = events.launch[event]
        order = np.argsort(events.start[np.where(launch >= 0, launch, event)], kind="stable")
        number = np.append(view.trace.steps.number, -1)[events.step[event].astype(np.int64)]
        steps = {int(n): rows[order[number[order] == n]] for n in np.unique(number[number >= 0])}
        counts = [len(own) for own in steps.values()]
        usual = max(set(counts), key=counts.count, default=0)
        found[column] = {n: own for n, own in steps.items() if len(own) == usual}
    common = sorted(set.intersection(*(set(steps) for steps in found.values()))) if found else []
    if len(common) < FEWEST_STEPS:
        return {}
    return {column: np.stack([steps[n] for n in common]) for column, steps in sorted(found.items())}


def _ends(view: RankView, rows: I64) -> F64:
    event = view.trace.collectives.event[rows]
    return np.asarray(view.trace.events.start[event] + view.trace.events.duration[event], np.float64)


def _compared(ends: dict[int, F64]) -> tuple[F64, F64]:
    """Return the scatter over the steps of the difference between the ends of two positions, and its mean, in ns, each
    of shape (positions, positions); infinite on one rank. A constant drift of the clocks is no scatter."""
    bounds = np.cumsum([0, *(own.shape[1] for own in ends.values())])
    scatter, apart = np.full((bounds[-1], bounds[-1]), np.inf), np.zeros((bounds[-1], bounds[-1]))
    columns = list(ends)
    for a, one in enumerate(columns):
        for b, other in enumerate(columns[:a]):
            apart_ns = ends[one][:, :, None] - ends[other][:, None, :]
            when = ends[one].mean(axis=1)
            when = when - when.mean()
            mean = apart_ns.mean(axis=0)
            drift = np.tensordot(when, apart_ns - mean, axes=1) / float(when @ when)
            left = apart_ns - mean - when[:, None, None] * drift
            deviation = np.sqrt((left**2).sum(axis=0) / (len(when) - 2))
            mine, theirs = slice(bounds[a], bounds[a + 1]), slice(bounds[b], bounds[b + 1])
            scatter[mine, theirs], scatter[theirs, mine] = deviation, deviation.T
            apart[mine, theirs], apart[theirs, mine] = mean, -mean.T
    return scatter, apart


def _possible(scatter: F64, freedom: I64) -> NDArray[np.bool_]:
    """Which pairs may end together: those that scatter no more than chance makes of the usual scatter of the best
    partners (chi-squared by Wilson and Hilferty, 1931, for all at once), by degrees of freedom of each row."""
    usual = max(float(np.median(scatter.min(axis=1))), RESOLUTION_NS)
    tail = NormalDist().inv_cdf(1.0 - UNLUCKY / len(scatter))
    quantile = (1.0 - 2.0 / (9.0 * freedom) + tail * np.sqrt(2.0 / (9.0 * freedom))) ** 3
    return np.asarray(scatter <= usual * np.sqrt(quantile)[:, None])


def _only_pairing(possible: NDArray[np.bool_]) -> I64 | None:
    """Return the partner of each position if all can be paired in exactly one way that is forced step by step: a
    position with one possible partner takes it, and others lose it. None otherwise."""
    left = {n: set(np.flatnonzero(row).tolist()) for n, row in enumerate(possible)}
    partner = np.full(len(left), -1, np.int64)
    forced = [n for n, others in left.items() if len(others) == 1]
    while forced:
        one = forced.pop()
        if partner[one] >= 0:
            continue
        if not left[one]:
            return None
        (other,) = left[one]
        partner[one], partner[other] = other, one
        for taken in (one, other):
            for rival in left[taken] - {one, other}:
                left[rival].discard(taken)
                if len(left[rival]) == 1:
                    forced.append(rival)
                elif not left[rival]:
                    return None
    return partner if (partner >= 0).all() else None
