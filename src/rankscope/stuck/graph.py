"""Which rank waits for which, in collectives and in messages, and where that ends.

A rank in a collective waits for the members that have not entered it; a rank in a send or receive for the other one, if
that is not in the counterpart. Whom others wait for, and who is in no call itself, is the cause. Where there is no such
rank, some wait for each other in a circle, and their calls do not show whose is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.records.running.hang import Call, HangVerdict, RankState
from rankscope.stuck.calls import calls_by_group, first_open, is_in_a_call
from rankscope.stuck.words import call_in_words, doing, message_in_words, named, places

__all__ = ["Wait", "Waits", "causes", "in_a_circle", "no_message", "of_unknown_messages", "waits_of"]


@dataclass(frozen=True, slots=True)
class Wait:
    """What a rank waits in, and for whom."""

    others: frozenset[int]
    what: str


Waits = dict[int, list[Wait]]
"""By rank; ranks that wait for nobody are not in it."""


def waits_of(ranks: Mapping[int, RankState]) -> Waits:
    """Return which rank waits for which others."""
    found: Waits = defaultdict(list)
    for (group, members), calls in calls_by_group(ranks).items():
        last = {rank: max(calls.get(rank, {}), default=0) for rank in members or tuple(calls) if rank in ranks}
        absent: dict[int, frozenset[int]] = {}  # shared by all ranks in one call: there may be thousands
        for rank, own in calls.items():
            number = first_open(own)
            if number is None:
                continue
            if number not in absent:
                absent[number] = frozenset(other for other, done in last.items() if done < number)
            if absent[number]:
                found[rank].append(Wait(absent[number], f"in {call_in_words(own[number], group)}"))
    for rank in ranks:
        for call in _open_messages(ranks[rank]):
            peer = call.peer
            if peer is None or peer not in ranks:
                continue
            if not any(_meet(call, other, rank) for other in _open_messages(ranks[peer])):
                found[rank].append(Wait(frozenset([peer]), message_in_words(call)))
    return dict(found)


def _open_messages(state: RankState) -> list[Call]:
    calls = state.answer.calls if state.answer is not None else []
    return [call for call in calls if call.message and not call.done and call.peer is not None]


def _meet(call: Call, other: Call, rank: int) -> bool:
    """Whether two open calls are the two ends of one message."""
    return other.peer == rank and ("send" in call.name) != ("send" in other.name)


def causes(ranks: Mapping[int, RankState], waits: Waits) -> list[int]:
    """Return the ranks that others wait for and that are in no call themselves."""
    awaited = frozenset[int]().union(*{wait.others for own in waits.values() for wait in own})
    return sorted(rank for rank in awaited if not is_in_a_call(ranks[rank]))


def no_message(ranks: Mapping[int, RankState], waits: Waits, missing: list[int]) -> HangVerdict:
    """Return the verdict on ranks that do not take part in messages of others."""
    who = [(rank, wait.what) for rank, own in waits.items() for wait in own if not wait.others.isdisjoint(missing)]
    whom = ", ".join(f"rank {rank} waits {what}" for rank, what in who[:3])
    return HangVerdict(
        kind="not_entered",
        ranks=missing,
        sentence=f"{named(missing)} {'does' if len(missing) == 1 else 'do'} not take part in a message: {whom}; "
        f"{'; '.join(doing(ranks[rank]) for rank in missing[:2])}.",
        why=places(ranks, missing),
        next=f"Look at what rank {missing[0]} does there.",
    )


def in_a_circle(ranks: Mapping[int, RankState], waits: Waits) -> HangVerdict | None:
    """Return the verdict where ranks wait for each other in a circle; None where none do."""
    circle = _circle(waits)
    if not circle:
        return None
    parts = []
    for rank, other in zip(circle, [*circle[1:], circle[0]], strict=True):
        what = next(wait.what for wait in waits[rank] if other in wait.others)
        parts.append(f"rank {rank} waits {f'for rank {other} ' if what.startswith('in ') else ''}{what}")
    return HangVerdict(
        kind="order",
        ranks=sorted(circle),
        sentence=f"{named(circle)} wait for each other: {'; '.join(parts[:4])}.",
        why=places(ranks, []),
        next="One of them has left out a call, or makes its calls in another order than the others.",
    )


def of_unknown_messages(ranks: Mapping[int, RankState], absent: Sequence[HangVerdict]) -> HangVerdict | None:
    """Return the verdict where all ranks that have not entered a call wait for messages of unknown peers; None
    elsewhere. Any of the others may have left out the other end of such a message."""
    for verdict in absent:
        if all(_waits_for_unknown(ranks[rank]) for rank in verdict.ranks):
            one = len(verdict.ranks) == 1
            return HangVerdict(
                kind="order",
                sentence=f"{named(verdict.ranks)} {'waits' if one else 'wait'} for a message whose other end is not "
                f"known, and others wait for {'it' if one else 'them'} in a call: nothing shows which rank has left "
                "out its own.",
                why=[verdict.sentence, *places(ranks, [])],
                next="Compare the sends and receives of all ranks: each needs its counterpart.",
            )
    return None


def _waits_for_unknown(state: RankState) -> bool:
    calls = state.answer.calls if state.answer is not None else []
    return any(call.message and not call.done and call.peer is None for call in calls)


def _circle(waits: Waits) -> list[int]:
    """Return ranks that wait for each other, in order: two if there are two, else those that are met on the way."""
    for rank, own in waits.items():
        for wait in own:
            for other in wait.others & waits.keys():
                if any(rank in back.others for back in waits[other]):
                    return [rank, other]
    path = [min(waits)] if waits else []
    while path:
        others = sorted(frozenset[int]().union(*(wait.others for wait in waits.get(path[-1], []))))
        met = [other for other in others if other in path]
        if met:
            return path[max(path.index(other) for other in met) :]
        path = [*path, others[0]] if others else []
    return []
