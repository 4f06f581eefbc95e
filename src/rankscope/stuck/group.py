"""What the numbered calls of one group show: who has not entered, skipped, or called something else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from rankscope.records.running.hang import Call, HangKind, HangVerdict, RankState
from rankscope.stuck.calls import Calls, as_before, has_rooted_ends, sizes_of
from rankscope.stuck.words import call_in_words, doing, named, places, sent

__all__ = ["of_group"]


def of_group(
    ranks: Mapping[int, RankState],
    group: str,
    members: tuple[int, ...],
    calls: Calls,
    number: int,
    causes: Collection[int],
) -> HangVerdict | None:
    """Return the verdict from the calls of one group; None where they show nothing.

    Args:
        ranks: all ranks that were asked.
        group: its name.
        members: its ranks; empty where they are not known.
        calls: its calls.
        number: of its oldest call that has not ended.
        causes: ranks that are waited for and wait for nobody. Of several that have not entered a call, only they are
            named, if there are any.
    """
    # After the first call in which two ranks differ, all calls are shifted against each other.
    for earlier in sorted({n for own in calls.values() for n in own if n <= number}):
        at = {rank: own[earlier] for rank, own in calls.items() if earlier in own}
        sizes = {sizes_of(call) for call in at.values()} if any(not call.done for call in at.values()) else set()
        if len({call.name for call in at.values()}) > 1 or len(sizes) > 1:
            return _differ(ranks, group, calls, earlier, at)
    inside = [rank for rank, own in calls.items() if number in own]
    known = members or tuple(calls)
    absent = [rank for rank in known if rank in ranks and rank not in inside]
    absent = [rank for rank in absent if rank in causes] or absent
    within = [rank for rank in inside if not calls[rank][number].done]
    call = calls[within[0]][number]
    what = call_in_words(call, group)
    silent = [rank for rank in absent if rank not in calls]
    if absent:
        where = "; ".join(doing(ranks[rank]) for rank in absent[:3])
        last = {rank: max(calls.get(rank, {}), default=0) for rank in absent}
        why = [
            f"Rank {rank} has made {last[rank]:,} calls of that group: {doing(ranks[rank])}."
            for rank in absent[:4]
            if rank not in silent
        ]
        why += places(ranks, absent)
        if silent:
            why.append(f"{named(silent)} did not answer, or keeps no record of calls.")
        return HangVerdict(
            kind="not_entered",
            ranks=absent,
            group=group,
            seq=number,
            sentence=f"{named(absent)} {'has' if len(absent) == 1 else 'have'} not entered {what}, in which "
            f"{named(within).lower()} {'waits' if len(within) == 1 else 'wait'}: {where}.",
            why=why,
            next=f"Look at what rank {absent[0]} does there.",
        )
    if len(known) > 1 and set(known) <= set(inside):
        if len(roots := {calls[rank][number].root for rank in within}) > 1:
            return _differ(ranks, group, calls, number, {rank: calls[rank][number] for rank in within})
        if has_rooted_ends(call) and (len(within) < len(inside) or None in roots):
            return _does_not_end(ranks, group, call, within)
        return HangVerdict(
            kind="all_in",
            ranks=[],
            group=group,
            seq=number,
            sentence=f"All ranks are in {what}, with the same sizes, and nothing moves: the network is silent.",
            why=places(ranks, []),
            next="Look at the links between the hosts, and at the library's own log (NCCL_DEBUG=INFO).",
        )
    return None


def _differ(
    ranks: Mapping[int, RankState], group: str, calls: Calls, number: int, at: Mapping[int, Call]
) -> HangVerdict:
    """Return the verdict on the ranks whose call of this number differs from that of the majority."""
    kinds: dict[tuple[str, object], list[int]] = defaultdict(list)
    for rank, call in at.items():
        kinds[call.name, (sizes_of(call), call.root)].append(rank)
    # The majority's call is taken to be right; of equally many, the one that continues the earlier order of calls.
    ordered = sorted(
        kinds.items(),
        key=lambda item: (-len(item[1]), -sum(as_before(calls[rank], number) for rank in item[1]), min(item[1])),
    )
    clear = len(ordered[0][1]) > len(ordered[1][1]) or (
        as_before(calls[ordered[0][1][0]], number) and not as_before(calls[ordered[1][1][0]], number)
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
            why=places(ranks, []),
            next=f"Look for a branch around that call that rank {guilty[0]} does not take.",
        )
    kind: HangKind = (
        "order" if shift == "order" else "sizes" if own.name == theirs.name and own.root == theirs.root else "kinds"
    )
    word = {"order": "in another order", "kinds": "different things", "sizes": "with different sizes"}[kind]
    roots = own.name == theirs.name and own.root != theirs.root  # else they are of no interest
    calls_of = f"{named(odd).lower()} {sent(own, with_root=roots)} and {named(usual).lower()} "
    return HangVerdict(
        kind=kind,
        ranks=sorted(odd if clear else [*usual, *odd]),
        group=group,
        seq=number,
        sentence=f"The ranks call {word}: as number {number:,} of group {group}, {calls_of}"
        f"{sent(theirs, with_root=roots)}.",
        why=([_DUE] if clear and kind == "kinds" else []) + places(ranks, []),
        next="All ranks of a group have to make the same calls, in the same order, of the same sizes.",
    )


def _does_not_end(ranks: Mapping[int, RankState], group: str, call: Call, within: Sequence[int]) -> HangVerdict:
    """Return the verdict on a call with one root that all have entered, and that does not end on some of them."""
    return HangVerdict(
        kind="all_in",
        ranks=[],
        group=group,
        seq=call.seq,
        sentence=f"All ranks have entered {call_in_words(call, group)}, and it does not end on "
        f"{named(within).lower()}: they may have named different roots (src or dst), or the network is silent.",
        why=places(ranks, []),
        next="Compare the root of that call on all ranks, then look at the links between the hosts.",
    )


_DUE = "A rank that calls something else than what is due has skipped a call, or makes its calls in another order."


def _shift(calls: Calls, number: int, usual: int, odd: int) -> str:
    """Compare two ranks' calls from the first difference on: skipped by one, in another order, or unknown ("")."""

    def alike(a: Call | None, b: Call | None) -> bool:
        return a is not None and b is not None and a.name == b.name and sizes_of(a) == sizes_of(b)

    theirs, own = calls[usual], calls[odd]
    ahead = alike(own.get(number), theirs.get(number + 1))
    behind = alike(own.get(number + 1), theirs.get(number))
    if ahead and behind:
        return "order"
    if ahead:
        return "skipped by these"
    return "skipped by the others" if behind else ""
