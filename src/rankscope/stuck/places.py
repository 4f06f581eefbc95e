"""Why a job hangs, from the places where its ranks are, without a record of their calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from rankscope.records.running.hang import HangVerdict, RankState
from rankscope.stuck.words import doing, named

__all__ = ["by_places"]

_MEETING = "/torch/distributed/"
"""In the path of the innermost frame of a rank that communicates."""


def by_places(ranks: Mapping[int, RankState]) -> HangVerdict:
    """Return the verdict: ranks that do not answer, do not communicate while others do, or are elsewhere than most."""
    answered = {rank: state for rank, state in ranks.items() if state.answer is not None}
    silent = [rank for rank in ranks if rank not in answered]
    at: dict[str, list[int]] = defaultdict(list)
    for rank, state in answered.items():
        at[doing(state)].append(rank)
    why = [f"{named(members)}: {place}." for place, members in sorted(at.items(), key=lambda item: len(item[1]))]
    if silent and answered:
        return HangVerdict(
            kind="waits_elsewhere",
            ranks=silent,
            sentence=f"{'; '.join(f'{named([rank])} {doing(ranks[rank])}' for rank in silent[:3])}.",
            why=why,
            next=f"py-spy dump --native --pid {ranks[silent[0]].pid}",
        )
    if len(at) > 1:
        odd = _elsewhere(answered, at)
        own = [f"{named(members)}: {place}." for place, members in at.items() if members[0] in odd]
        first = own[0] if own else why[0]
        return HangVerdict(
            kind="waits_elsewhere",
            ranks=odd,
            sentence=f"The ranks wait in different places: {first[0].lower()}{first[1:]}",
            why=why,
            next="Look at what the first of them waits for.",
        )
    return HangVerdict(kind="unknown", sentence="No step is made, and nothing tells why.", why=why)


def _elsewhere(answered: Mapping[int, RankState], at: Mapping[str, list[int]]) -> list[int]:
    """Return the ranks that others seem to wait for; empty where the places do not show it."""
    meeting = {rank for rank, state in answered.items() if _MEETING in _innermost(state)}
    backward = {rank for rank, state in answered.items() if state.answer and state.answer.part == "backward"}
    away = sorted(answered.keys() - meeting - backward)  # in the backward a rank may wait in C++
    if meeting and away:
        return away
    rarest = sorted(at.values(), key=len)
    alone = len(rarest[0]) < min(len(rarest[1]), len(answered) / 2)
    return rarest[0] if alone and meeting.isdisjoint(rarest[0]) else []


def _innermost(state: RankState) -> str:
    stacks = state.answer.stacks if state.answer is not None else []
    frames = next((stack.frames for stack in stacks if stack.training), [])
    return frames[-1] if frames else ""
