"""Why a job hangs, from the answers of all its ranks. Pure: records in, a record out.

Every rank numbers the collectives of a group by itself. Where ranks wait in call n of a group, a rank whose last call
is an earlier one has not entered it. A rank whose call n differs from theirs has skipped a call, or makes calls in
another order. Where all ranks are in the same call with the same sizes, none is missing and the network does not
respond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rankscope.between.stuck_starting import not_met
from rankscope.between.stuck_words import call_in_words, doing, named, sent, works
from rankscope.records.running.hang import Call, HangKind, HangVerdict, NodeAnswers, RankState

__all__ = ["waits_for_others", "why_stuck"]

_SAME_SIZES = ("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "broadcast")
"""Calls whose inputs have one size on all ranks, unless their name shows otherwise (``allgatherv``, ``coalesced``)."""

_MOST_PERIOD = 24

Calls = dict[int, dict[int, Call]]
"""rank -> number of the call -> the call"""


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
    return _by_stacks(ranks)


def waits_for_others(state: RankState) -> bool:
    """Whether a rank is in a call that has not ended, as far as calls are recorded."""
    if state.stage == "rendezvous":
        return True
    return state.answer is not None and any(not call.done for call in state.answer.calls)


def _is_busy(state: RankState) -> bool:
    """Whether the main thread works. A loop that sleeps in between looks the same at each question, but works, too."""
    return state.answer is not None and works(state)


def _from_outside(ranks: Mapping[int, RankState], found: list[int], kind: str, word: str) -> HangVerdict:
    pids = ", ".join(str(ranks[rank].pid) for rank in found[:8])
    stopped = kind == "stopped"
    return HangVerdict(
        kind="stopped" if stopped else "gone",
        ranks=found,
        sentence=f"{named(found)} {'is' if len(found) == 1 else 'are'} {word} (process {pids}); the others wait.",
        why=[f"{named([rank])}: {doing(ranks[rank])}." for rank in found[:4] if ranks[rank].stacks]
        + _waiting(ranks, found),
        next=f"Continue it: kill -CONT {pids.replace(',', '')}" if stopped else "Look at the end of its output.",
    )


def _by_calls(ranks: Mapping[int, RankState]) -> HangVerdict | None:
    """Return the verdict from the numbers of the calls; None where they are not conclusive."""
    found: list[tuple[int, HangVerdict]] = []
    for (group, members), calls in _groups(ranks).items():
        first_open = [min(n for n, call in own.items() if not call.done) for own in calls.values() if _open(own)]
        if not first_open:
            continue
        number = min(first_open)
        verdict = _of_group(ranks, group, members, calls, number)
        if verdict is not None:
            began = min(own[number].created_ns for own in calls.values() if number in own)
            found.append((began, verdict))
    # A rank that is missing in one group may wait in another. The cause is a rank that does not call as before; where
    # no rank does, or more than one, the oldest open call.
    astray = {rank for rank, state in ranks.items() if _is_astray(state)} if len(found) > 1 else set()
    found.sort(key=lambda pair: (pair[1].kind == "all_in", not astray & set(pair[1].ranks), pair[0]))
    return found[0][1] if found else None


def _is_astray(state: RankState) -> bool:
    """Whether the first open call of a rank, of all its groups, breaks the order in which it made its calls before."""
    calls = [call for call in state.answer.calls if not call.message] if state.answer is not None else []
    calls.sort(key=lambda call: call.created_ns)
    first = next((at for at, call in enumerate(calls) if not call.done), None)
    if first is None:
        return False
    kinds = [(call.group, call.name, _sizes(call)) for call in calls]
    return _period(kinds[:first]) > 0 and not _continues(kinds[: first + 1])


def _open(own: Mapping[int, Call]) -> bool:
    return any(not call.done for call in own.values())


def _groups(ranks: Mapping[int, RankState]) -> dict[tuple[str, tuple[int, ...]], Calls]:
    """Return for each group, by name and members, the numbered calls of every rank in it."""
    found: dict[tuple[str, tuple[int, ...]], Calls] = defaultdict(dict)
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


def _of_group(
    ranks: Mapping[int, RankState], group: str, members: tuple[int, ...], calls: Calls, number: int
) -> HangVerdict | None:
    # After the first call in which two ranks differ, all calls are shifted against each other.
    for earlier in sorted({n for own in calls.values() for n in own if n <= number}):
        at = {rank: own[earlier] for rank, own in calls.items() if earlier in own}
        sizes = {_sizes(call) for call in at.values()} if any(not call.done for call in at.values()) else set()
        if len({call.name for call in at.values()}) > 1 or len(sizes) > 1:
            return _differ(ranks, group, calls, earlier, at)
    inside = [rank for rank, own in calls.items() if number in own]
    known = members or tuple(calls)
    absent = [rank for rank in known if rank in ranks and rank not in inside]
    call = calls[inside[0]][number]
    what = call_in_words(call, group)
    silent = [rank for rank in absent if rank not in calls]
    if absent:
        where = "; ".join(doing(ranks[rank]) for rank in absent[:3])
        last = {rank: max(calls.get(rank, {}), default=0) for rank in absent}
        why = [f"Rank {rank} has made {last[rank]:,} calls of that group: {doing(ranks[rank])}." for rank in absent[:4]]
        why += _waiting(ranks, absent)
        if silent:
            why.append(f"{named(silent)} did not answer, or keeps no record of calls.")
        return HangVerdict(
            kind="not_entered",
            ranks=absent,
            group=group,
            seq=number,
            sentence=f"{named(absent)} {'has' if len(absent) == 1 else 'have'} not entered {what}, in which "
            f"{named(inside).lower()} {'waits' if len(inside) == 1 else 'wait'}: {where}.",
            why=why,
            next=f"Look at what rank {absent[0]} does there.",
        )
    if len(known) > 1 and set(known) <= set(inside):
        return HangVerdict(
            kind="all_in",
            ranks=[],
            group=group,
            seq=number,
            sentence=f"All ranks are in {what}, with the same sizes, and nothing moves: the network is silent.",
            why=_waiting(ranks, []),
            next="Look at the links between the hosts, and at the library's own log (NCCL_DEBUG=INFO).",
        )
    return None


def _sizes(call: Call) -> tuple[tuple[int, ...], ...]:
    """Shapes that must be equal on all ranks; empty where they may differ."""
    name = call.name.lower().rpartition(":")[2]
    if not any(word in name for word in _SAME_SIZES) or "coalesced" in name or name.endswith("v"):
        return ()
    return tuple(tuple(shape) for shape in call.sizes)


def _differ(
    ranks: Mapping[int, RankState], group: str, calls: Calls, number: int, at: Mapping[int, Call]
) -> HangVerdict:
    """Return the verdict on the ranks whose call of this number differs from that of the majority."""
    kinds: dict[tuple[str, object], list[int]] = defaultdict(list)
    for rank, call in at.items():
        kinds[call.name, _sizes(call)].append(rank)
    # The majority's call is taken to be right; of equally many, the one that continues the earlier order of calls.
    ordered = sorted(
        kinds.items(),
        key=lambda item: (-len(item[1]), -sum(_as_before(calls[rank], number) for rank in item[1]), min(item[1])),
    )
    clear = len(ordered[0][1]) > len(ordered[1][1]) or (
        _as_before(calls[ordered[0][1][0]], number) and not _as_before(calls[ordered[1][1][0]], number)
    )
    usual, odd = ordered[0][1], [rank for _, members in ordered[1:] for rank in members]
    theirs, own = at[usual[0]], at[odd[0]]
    shift = _shift(calls, number, usual[0], odd[0])
    if shift in ("skipped by these", "skipped by the others"):
        guilty, missed = (odd, theirs) if shift == "skipped by these" else (usual, own)
        one = len(guilty) == 1
        return HangVerdict(
            kind="skipped",
            ranks=sorted(guilty),
            group=group,
            seq=number,
            sentence=f"{named(guilty)} {'has' if one else 'have'} skipped {call_in_words(missed, group)}: from there "
            f"on {'its' if one else 'their'} calls are one behind those of the others.",
            why=_waiting(ranks, []),
            next=f"Look for a branch around that call that rank {guilty[0]} does not take.",
        )
    kind: HangKind = "order" if shift == "order" else "sizes" if own.name == theirs.name else "kinds"
    word = {"order": "in another order", "kinds": "different things", "sizes": "with different sizes"}[kind]
    return HangVerdict(
        kind=kind,
        ranks=sorted(odd if clear else [*usual, *odd]),
        group=group,
        seq=number,
        sentence=f"The ranks call {word}: as number {number:,} of group {group}, {named(odd).lower()} {sent(own)} and "
        f"{named(usual).lower()} {sent(theirs)}.",
        why=([_DUE] if clear and kind == "kinds" else []) + _waiting(ranks, []),
        next="All ranks of a group have to make the same calls, in the same order, of the same sizes.",
    )


_DUE = "A rank that calls something else than what is due has skipped a call, or makes its calls in another order."


def _as_before(own: Mapping[int, Call], number: int) -> bool:
    """Whether a call continues the rank's periodic sequence of calls, which repeats with the steps."""
    kinds = {n: (call.name, _sizes(call)) for n, call in own.items()}
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


def _shift(calls: Calls, number: int, usual: int, odd: int) -> str:
    """Compare two ranks' calls from the first difference on: skipped by one, in another order, or unknown ("")."""

    def alike(a: Call | None, b: Call | None) -> bool:
        return a is not None and b is not None and a.name == b.name and _sizes(a) == _sizes(b)

    theirs, own = calls[usual], calls[odd]
    ahead = alike(own.get(number), theirs.get(number + 1))
    behind = alike(own.get(number + 1), theirs.get(number))
    if ahead and behind:
        return "order"
    if ahead:
        return "skipped by these"
    return "skipped by the others" if behind else ""


def _long(ranks: Mapping[int, RankState], advancing: list[int], mismatch: HangVerdict | None) -> HangVerdict:
    late = mismatch.ranks if mismatch is not None and mismatch.kind == "not_entered" else []
    busy = late or advancing
    where = "; ".join(doing(ranks[rank]) for rank in busy[:2])
    return HangVerdict(
        kind="long",
        ranks=late,
        sentence=f"This takes long, and nothing stands still: {named(busy)} {'goes' if len(busy) == 1 else 'go'} on, "
        f"{where}.",
        why=([mismatch.sentence] if mismatch is not None else []) + _waiting(ranks, busy),
        next="Wait: an evaluation, a checkpoint or a compilation may be under way.",
    )


def _by_stacks(ranks: Mapping[int, RankState]) -> HangVerdict:
    """Return the verdict without a record of calls: ranks that are elsewhere than the majority."""
    answered = {rank: state for rank, state in ranks.items() if state.answer is not None}
    silent = [rank for rank in ranks if rank not in answered]
    places: dict[str, list[int]] = defaultdict(list)
    for rank, state in answered.items():
        places[doing(state)].append(rank)
    why = [f"{named(members)}: {place}." for place, members in sorted(places.items(), key=lambda item: len(item[1]))]
    if silent and answered:
        busy = [rank for rank in silent if ranks[rank].cpu_s > 1]
        how = "computes in native code" if busy else "waits in native code that keeps Python's lock"
        return HangVerdict(
            kind="waits_elsewhere", ranks=silent, why=why, next=f"py-spy dump --native --pid {ranks[silent[0]].pid}",
            sentence=f"{named(silent)} {'does' if len(silent) == 1 else 'do'} not answer: it {how}, or did not begin "
            "to listen.",
        )  # fmt: skip
    if len(places) > 1:
        rare = min(places.values(), key=len)
        return HangVerdict(
            kind="waits_elsewhere", ranks=rare if len(rare) < len(answered) / 2 else [], why=why,
            sentence=f"The ranks wait in different places: {why[0][0].lower()}{why[0][1:]}",
            next="Look at what the first of them waits for.",
        )  # fmt: skip
    return HangVerdict(kind="unknown", sentence="No step is made, and nothing tells why.", why=why)


def _waiting(ranks: Mapping[int, RankState], but: Sequence[int]) -> list[str]:
    """Describe where the other ranks are, with equal places grouped."""
    places: dict[str, list[int]] = defaultdict(list)
    for rank, state in ranks.items():
        if rank not in but:
            places[doing(state)].append(rank)
    return [f"{named(members)}: {place}." for place, members in list(places.items())[:4]]
