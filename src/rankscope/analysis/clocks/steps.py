"""Number the job's steps: which step of one rank is which step of another, by the calls they share.

A step number is what a rank has counted. Ranks restart, skip a warm-up, or call their optimizer once more. Steps of two
ranks are the same if the same calls were launched in them. The numbers of one rank are those of the job. Every other
rank's difference is what most calls show that it shares with ranks whose difference is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.intervals import Spans
from rankscope.analysis.rank.view import RankView

__all__ = ["NONE", "JobSteps", "find_steps", "step_length"]

I64 = NDArray[np.int64]

NONE = -(2**62)
"""Marks a missing step number. It is far below 0, because a rank may have recorded steps before another's step 0."""


@dataclass(slots=True)
class JobSteps:
    """Numbering of the job's steps."""

    later: list[int]
    """Per rank: what to add to its own step numbers."""
    of_call: I64
    """Per matched call: step that launched it, :data:`NONE` where no rank recorded one."""
    common: I64
    """Steps that every rank with step marks recorded, ascending."""
    unmarked: list[int] = field(default_factory=list)
    """Columns of ranks without step marks; their steps follow from the marks of the others."""
    differ: list[int] = field(default_factory=list)
    """Columns of ranks whose own numbers differ from the job's."""

    def of_rank(self, view: RankView, column: int) -> I64:
        """Return the job's number of each of a rank's own steps, in their order."""
        return view.trace.steps.number + self.later[column]


def find_steps(views: Sequence[RankView], matched: Matched) -> JobSteps:
    """Number the steps of one window."""
    own = np.full(len(matched.call), NONE, np.int64)
    for column, view in enumerate(views):
        mine = matched.of(column)
        step = view.trace.events.step[view.trace.collectives.event[matched.row[mine]]]
        own[mine] = np.append(view.trace.steps.number, NONE)[step.astype(np.int64)]
    later = _differences(matched, own)
    number = np.where(own != NONE, own + np.array(later, np.int64)[matched.column] if len(own) else own, NONE)
    marked = [c for c, v in enumerate(views) if v.steps]
    recorded = [set((views[c].trace.steps.number + later[c]).tolist()) for c in marked]
    common = sorted(set.intersection(*recorded)) if recorded else []
    return JobSteps(
        later=later,
        of_call=_most_said(matched, number),
        common=np.array(common, np.int64),
        unmarked=[c for c, v in enumerate(views) if not v.steps],
        differ=[c for c in marked if later[c]],
    )


def step_length(views: Sequence[RankView], clocks: Clocks, steps: JobSteps, bounds: Sequence[Spans]) -> float | None:
    """Return the job's mean step time over the steps that every rank recorded, in ns; None where there are none.

    It extends from the last rank's begin of the first of these steps to the last rank's end of the last one. Time
    before the last rank begins belongs to earlier work, for which the other ranks wait.

    Args:
        views: the ranks.
        clocks: their alignment.
        steps: the job's steps.
        bounds: begin and end of each rank's own steps, in ns of its own clock.
    """
    if not len(steps.common):
        return None
    begins, ends = [], []
    for column, (view, (begin, end)) in enumerate(zip(views, bounds, strict=True)):
        if not view.steps:
            continue
        own = np.flatnonzero(np.isin(steps.of_rank(view, column), steps.common))
        begins.append(float(clocks.aligned(column, begin[own[:1]])[0]))
        ends.append(float(clocks.aligned(column, end[own[-1:]])[0]))
    return (max(ends) - max(begins)) / len(steps.common)


def _differences(matched: Matched, own: I64) -> list[int]:
    """Return what to add to each rank's step numbers, by a spanning tree that joins ranks with most shared calls
    first."""
    count = len(matched.ranks)
    later = [0] * count
    if not len(matched):
        return later
    head = matched.first[:-1][matched.call]
    both = (own != NONE) & (own[head] != NONE) & (head != np.arange(len(own)))
    if not (own[head][both] != own[both]).any():
        return later
    triples = np.stack((matched.column[head][both], matched.column[both], own[head][both] - own[both]), axis=1)
    found, often = np.unique(triples, axis=0, return_counts=True)
    votes: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for (one, other, apart), calls in zip(found.tolist(), often.tolist(), strict=True):
        votes[one, other].append((calls, apart))
    links = sorted(((*max(said), one, other) for (one, other), said in votes.items()), key=lambda k: (-k[0], k[2:]))
    group = list(range(count))
    members: dict[int, list[int]] = {c: [c] for c in range(count)}
    for _, apart, one, other in links:
        left, right = group[one], group[other]
        if left == right:
            continue
        # The group with more members keeps its numbers; of equally large groups, the one of the lower rank.
        shift = later[one] + apart - later[other]
        if (len(members[right]), -right) > (len(members[left]), -left):
            left, right, shift = right, left, -shift
        for column in members.pop(right):
            later[column] += shift
            group[column] = left
            members[left].append(column)
    return later


def _most_said(matched: Matched, number: I64) -> I64:
    """Return for each call the step number that most of its members have, the lowest of equally frequent ones."""
    if not len(matched):
        return np.empty(0, np.int64)
    first = matched.first[:-1]
    known = number != NONE
    high = np.maximum.reduceat(number, first)
    low = np.minimum.reduceat(np.where(known, number, np.iinfo(np.int64).max), first)
    out = np.where(high == NONE, NONE, low)
    for call in np.flatnonzero((high != low) & (high != NONE)).tolist():
        numbers = number[matched.first[call] : matched.first[call + 1]]
        values, counts = np.unique(numbers[numbers != NONE], return_counts=True)
        out[call] = values[np.argmax(counts)]
    return out
