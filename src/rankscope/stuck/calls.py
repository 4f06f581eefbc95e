"""The numbered calls of each group, and whether a call continues the order of those before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rankscope.records.running.hang import Call, RankState

__all__ = [
    "Calls",
    "Group",
    "as_before",
    "calls_by_group",
    "first_open",
    "has_rooted_ends",
    "is_astray",
    "is_in_a_call",
    "sizes_of",
]

Calls = dict[int, dict[int, Call]]
"""rank -> number of the call -> the call"""
Group = tuple[str, tuple[int, ...]]
"""Name and members of a group."""

_SAME_SIZES = ("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "broadcast")
"""Calls whose inputs have one size on all ranks, unless their name shows otherwise (``allgatherv``, ``coalesced``)."""
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Calls with one rank that sends to, or receives from, all others. The others may leave them before all have come."""
_MOST_PERIOD = 24


def calls_by_group(ranks: Mapping[int, RankState]) -> dict[Group, Calls]:
    """Return for each group the numbered calls of every rank in it."""
    found: dict[Group, Calls] = defaultdict(dict)
    for rank, state in ranks.items():
        if state.answer is None or not state.answer.recorder:
            continue
        for name, members in state.answer.groups.items():
            found[name, tuple(members)].setdefault(rank, {})
        for call in state.answer.calls:
            if not call.message:
                members = state.answer.groups.get(call.group, [])
                found[call.group, tuple(members)].setdefault(rank, {})[call.seq] = call
    return found


def first_open(own: Mapping[int, Call]) -> int | None:
    """Return the number of the first call that has not ended; None if all have."""
    return min((number for number, call in own.items() if not call.done), default=None)


def is_in_a_call(state: RankState) -> bool:
    """Whether a call of a rank has not ended, as far as calls are recorded."""
    return state.answer is not None and any(not call.done for call in state.answer.calls)


def sizes_of(call: Call) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that must be equal on all ranks; empty where they may differ."""
    name = call.name.lower().rpartition(":")[2]
    if not any(word in name for word in _SAME_SIZES) or "coalesced" in name or name.endswith("v"):
        return ()
    return tuple(tuple(shape) for shape in call.sizes)


def has_rooted_ends(call: Call) -> bool:
    """Whether a rank may leave this call before all ranks have entered it, depending on its root."""
    return call.name.lower().rpartition(":")[2] in _ROOTED


def is_astray(state: RankState) -> bool:
    """Whether the first open call of a rank, of all its groups, breaks the order in which it made its calls before."""
    calls = [call for call in state.answer.calls if not call.message] if state.answer is not None else []
    calls.sort(key=lambda call: call.created_ns)
    first = next((at for at, call in enumerate(calls) if not call.done), None)
    if first is None:
        return False
    kinds = [(call.group, call.name, sizes_of(call)) for call in calls]
    return _period(kinds[:first]) > 0 and not _continues(kinds[: first + 1])


def as_before(own: Mapping[int, Call], number: int) -> bool:
    """Whether a call continues the rank's periodic sequence of calls, which repeats with the steps."""
    kinds = {n: (call.name, sizes_of(call)) for n, call in own.items()}
    return _continues([kinds.get(n) for n in range(number - 2 * _MOST_PERIOD, number + 1)])


def _continues(kinds: Sequence[object]) -> bool:
    """Whether the last of these follows from the shortest period in which those before it have come twice."""
    period = _period(kinds[:-1])
    return period > 0 and kinds[-1] == kinds[-1 - period]


def _period(kinds: Sequence[object]) -> int:
    """Return the shortest period in which the last of these have come twice; 0 where there is none."""
    for period in range(1, min(_MOST_PERIOD, len(kinds) // 2) + 1):
        last, earlier = kinds[-period:], kinds[-2 * period : -period]
        if None not in last and last == earlier:
            return period
    return 0
