"""Why a job hangs, from the answers of all its ranks. Pure: records in, a record out.

Every rank numbers the collectives of a group by itself. Where ranks wait in call n of a group, a rank whose last call
is an earlier one has not entered it. A rank whose call n differs from theirs has skipped a call, or makes calls in
another order. Where all ranks are in the same call with the same sizes, none is missing and the network does not
respond. Ranks may wait for each other in several groups and in messages: see :mod:`rankscope.stuck.graph`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankscope.records.running.hang import HangVerdict, NodeAnswers, RankState
from rankscope.stuck.calls import calls_by_group, first_open, is_astray, is_in_a_call
from rankscope.stuck.graph import causes, in_a_circle, no_message, of_unknown_messages, waits_of
from rankscope.stuck.group import of_group
from rankscope.stuck.places import by_places
from rankscope.stuck.starting import not_met
from rankscope.stuck.words import doing, named, places, works, works_elsewhere

__all__ = ["waits_for_others", "why_stuck"]


def why_stuck(nodes: Sequence[NodeAnswers]) -> HangVerdict | None:
    """Return the verdict; None where no rank was asked.

    Args:
        nodes: answers to one question, at most one of each node. Those of an older attempt are left out.
    """
    attempt = max((node.attempt for node in nodes), default=0)
    nodes = [node for node in nodes if node.attempt == attempt]
    ranks = {state.rank: state for node in nodes for state in node.ranks}
    if not ranks:
        return None
    world = max(node.world_size for node in nodes)
    verdict = _verdict(ranks, world)
    verdict.time_ns = max(node.time_ns for node in nodes)
    verdict.idle_s = min(state.idle_s for state in ranks.values())
    verdict.stepped = any(state.steps for state in ranks.values())
    verdict.resumed = any(node.resumed for node in nodes)
    if len(ranks) < world:
        verdict.why.append(f"{world - len(ranks)} of {world} ranks were not asked; nothing is known of them.")
    return verdict


def _verdict(ranks: Mapping[int, RankState], world: int) -> HangVerdict:
    for letters, kind, word in (("Tt", "stopped", "stopped by a signal"), ("ZX", "gone", "ended")):
        found = [rank for rank, state in ranks.items() if (state.state or "X") in letters]
        if found and (kind == "stopped" or any(waits_for_others(state) for state in ranks.values())):
            return _from_outside(ranks, found, kind, word)
    if (start := not_met(ranks, world)) is not None:
        return start
    mismatch = _by_calls(ranks)
    advancing = [
        rank for rank, state in ranks.items() if state.advances or (_is_busy(state) and not waits_for_others(state))
    ]
    if mismatch is not None and (mismatch.kind not in ("not_entered", "all_in") or not advancing):
        return mismatch
    if advancing:
        return _long(ranks, advancing, mismatch)
    return by_places(ranks)


def waits_for_others(state: RankState) -> bool:
    """Whether a rank is in a call that has not ended, as far as calls are recorded."""
    return state.stage == "rendezvous" or is_in_a_call(state)


def _is_busy(state: RankState) -> bool:
    """Whether a rank works. A loop that sleeps in between looks the same at each question, and so does a rank that
    waits for its other threads, or for a compiler that it has started."""
    began = state.answer is not None or not state.stage
    return began and bool(state.state) and state.state not in "TtZX" and (works(state) or works_elsewhere(state))


def _from_outside(ranks: Mapping[int, RankState], found: list[int], kind: str, word: str) -> HangVerdict:
    pids = ", ".join(str(ranks[rank].pid) for rank in found[:8])
    stopped = kind == "stopped"
    others = "; the others wait" if len(found) < len(ranks) else ""
    return HangVerdict(
        kind="stopped" if stopped else "gone",
        ranks=found,
        sentence=f"{named(found)} {'is' if len(found) == 1 else 'are'} {word} (process {pids}){others}.",
        why=[f"{named([rank])}: {doing(ranks[rank])}." for rank in found[:4] if ranks[rank].stacks]
        + places(ranks, found),
        next=f"Continue it: kill -CONT {pids.replace(',', '')}" if stopped else "Look at the end of its output.",
    )


def _by_calls(ranks: Mapping[int, RankState]) -> HangVerdict | None:
    """Return the verdict from the calls of all ranks; None where they are not conclusive."""
    waits = waits_of(ranks)
    missing = causes(ranks, waits)
    found: list[tuple[int, HangVerdict]] = []
    for (group, members), calls in calls_by_group(ranks).items():
        starts = [number for own in calls.values() if (number := first_open(own)) is not None]
        verdict = of_group(ranks, group, members, calls, min(starts), missing) if starts else None
        if verdict is not None:
            found.append((min(own[min(starts)].created_ns for own in calls.values() if min(starts) in own), verdict))
    found.sort(key=lambda pair: pair[0])  # of several reasons, the oldest
    verdicts = [verdict for _, verdict in found]
    absent = [verdict for verdict in verdicts if verdict.kind == "not_entered"]
    for verdict in absent:
        if not set(verdict.ranks).isdisjoint(missing):
            return verdict
    for verdict in verdicts:
        if verdict.kind not in ("not_entered", "all_in"):
            return verdict
    if missing:
        return no_message(ranks, waits, missing)
    # All that are waited for wait themselves. The cause is a rank that does not call as before, if others do.
    circle = in_a_circle(ranks, waits)
    if circle is None and (untold := of_unknown_messages(ranks, absent)) is not None:
        return untold
    astray = {rank for rank, state in ranks.items() if is_astray(state)}
    if circle is not None and not astray >= set(circle.ranks):
        odd = next((verdict for verdict in absent if not astray.isdisjoint(verdict.ranks)), None)
        return odd or circle
    return circle or next(iter([*absent, *verdicts]), None)


def _long(ranks: Mapping[int, RankState], advancing: list[int], mismatch: HangVerdict | None) -> HangVerdict:
    late = mismatch.ranks if mismatch is not None and mismatch.kind == "not_entered" else []
    busy = late or advancing
    where = "; ".join(doing(ranks[rank]) for rank in busy[:2])
    return HangVerdict(
        kind="long",
        ranks=late,
        sentence=f"This takes long, and nothing stands still: {named(busy)} {'goes' if len(busy) == 1 else 'go'} on, "
        f"{where}.",
        why=([mismatch.sentence] if mismatch is not None else []) + places(ranks, busy),
        next="Wait: an evaluation, a checkpoint or a compilation may be under way.",
    )
