"""Identify process groups across ranks when several groups have the same ranks.

A group is identified by its rank list. Where a rank is in several groups of the same ranks (a separate communicator for
reduce-scatter, say), names, descriptions and numbers may differ between ranks, and so may the order of creation. Groups
are therefore compared first by the calls they are used for, then by name and description.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from rankscope.analysis.matching.communicators import Memberships
from rankscope.analysis.rank.view import RankView
from rankscope.trace.columns import Group

__all__ = ["GroupNumbers", "number_groups"]

MOST_ALIKE = 5
"""Largest number of groups of the same ranks for which all assignments are tried, 5! = 120; beyond it, assignment is
greedy."""


@dataclass(slots=True)
class GroupNumbers:
    """For each rank: index of a group -> its number among the groups of the same ranks, equal on all ranks of the
    group."""

    number: list[dict[int, int]]
    renamed: list[int] = field(default_factory=list)
    """Columns of ranks on which a group name stands for another group than on the other ranks."""


@dataclass(slots=True)
class _Local:
    """A group as one rank recorded it."""

    index: int
    group: Group
    used_for: Counter[object]


def number_groups(views: Sequence[RankView], kinds: Sequence[list[str]], memberships: Memberships) -> GroupNumbers:
    """Number the groups that have the same ranks. ``memberships`` is shared by all ranks of the window."""
    found = GroupNumbers([{} for _ in views])
    sharing: dict[tuple[int, ...], dict[int, list[_Local]]] = defaultdict(dict)
    for column, view in enumerate(views):
        groups = view.trace.groups
        same: dict[tuple[int, ...], list[int]] = defaultdict(list)
        used = view.trace.collectives.group
        for index in np.flatnonzero(np.bincount(used[used >= 0])).tolist():
            if groups[index].ranks:
                same[memberships.sorted(groups[index].ranks)].append(index)
        for ranks, indices in same.items():
            sharing[ranks][column] = [_Local(i, groups[i], Counter()) for i in indices]
    for members in sharing.values():
        if max(len(local) for local in members.values()) > 1:
            _number(views, kinds, members, found)
    return found


def _number(
    views: Sequence[RankView], kinds: Sequence[list[str]], members: dict[int, list[_Local]], found: GroupNumbers
) -> None:
    for column, local in members.items():
        calls = views[column].trace.collectives
        by_index = {group.index: group for group in local}
        for row, index in enumerate(calls.group.tolist()):
            if index in by_index:
                use = kinds[column][row], int(calls.in_elements[row]), int(calls.out_elements[row])
                by_index[index].used_for.update((use, use[0]))
    leader = max(members, key=lambda c: (len(members[c]), -c))
    first = members[leader]
    for column, local in members.items():
        chosen = _assignment(first, local)
        for group, place in zip(local, chosen, strict=True):
            found.number[column][group.index] = place
            names = [g.group.name for g in first]
            if place < len(first) and group.group.name in names and names.index(group.group.name) != place:
                found.renamed.append(column)
    found.renamed[:] = sorted(set(found.renamed))


def _assignment(first: list[_Local], local: list[_Local]) -> list[int]:
    """Return for each local group the index of its counterpart in ``first``."""
    score = np.array([[_alike(a, b) + 0.25 * (i == j) for j, a in enumerate(first)] for i, b in enumerate(local)])
    if len(first) <= MOST_ALIKE:
        tried = permutations(range(len(first)), len(local))
        return list(max(tried, key=lambda p: sum(score[i, j] for i, j in enumerate(p))))
    chosen: list[int] = []
    for row in score:
        chosen.append(max((j for j in range(len(first)) if j not in chosen), key=lambda j: float(row[j])))
    return chosen


def _alike(one: _Local, other: _Local) -> float:
    """Score the similarity of two groups. Their use counts most; description and name decide between groups of equal
    use."""
    total = max(one.used_for.total(), other.used_for.total(), 1)
    use = (one.used_for & other.used_for).total() / total
    described = one.group.described and one.group.description == other.group.description
    return 4.0 * use + 2.0 * described + 1.0 * (one.group.name == other.group.name)
