"""Why a job does not begin: its ranks meet in ``init_process_group`` and wait for those that have not called it."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.records.running.hang import HangVerdict, RankState
from rankscope.stuck.words import doing, named, works

__all__ = ["not_met"]

_CALL = "init_process_group"


def not_met(ranks: Mapping[int, RankState], world: int) -> HangVerdict | None:
    """Return the verdict where ranks wait for others to begin; None where none does.

    Args:
        ranks: states of the ranks that were asked.
        world: number of ranks of the job.
    """
    waiting = [rank for rank, state in ranks.items() if state.stage == "rendezvous"]
    if not waiting:
        return None
    wait = "waits" if len(waiting) == 1 else "wait"
    absent = [rank for rank, state in ranks.items() if state.stage == "began"]
    if absent:
        where = "; ".join(doing(ranks[rank]) for rank in absent[:3])
        if all(works(ranks[rank]) for rank in absent):
            return HangVerdict(
                kind="long",
                ranks=absent,
                sentence=f"This takes long, and nothing stands still: {named(absent).lower()} "
                f"{'works' if len(absent) == 1 else 'work'} before {_CALL}, in which {named(waiting).lower()} {wait}.",
                next="Wait: data may be prepared, or a model loaded.",
            )
        return HangVerdict(
            kind="not_entered",
            ranks=absent,
            sentence=f"{named(absent)} {'has' if len(absent) == 1 else 'have'} not called {_CALL}, in which "
            f"{named(waiting).lower()} {wait}: {where}.",
            why=[f"{named([rank])}, process {ranks[rank].pid}: {doing(ranks[rank])}." for rank in absent[:4]],
            next=f"Look at what rank {absent[0]} does before {_CALL}.",
        )
    if len(ranks) < world:
        return HangVerdict(
            kind="not_entered",
            sentence=f"{named(waiting)} {wait} in {_CALL} for {world - len(ranks)} of {world} ranks, of which nothing "
            "was seen: their processes were not started, have not imported torch, or run on nodes that were not asked.",
            next="Look at whether all nodes have started their processes, and at their output.",
        )
    return HangVerdict(
        kind="all_in",
        sentence=f"All ranks are in {_CALL}, and do not find each other: the network between them is silent.",
        why=[f"{named([rank])}: {doing(state)}." for rank, state in list(ranks.items())[:4]],
        next="Look at MASTER_ADDR and MASTER_PORT, at firewalls, and at the network interface that is taken "
        "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME).",
    )
