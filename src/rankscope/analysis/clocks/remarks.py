"""Remarks for the reader of the report on how calls and steps were recognised."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.clocks.steps import JobSteps
from rankscope.analysis.matching.collectives import UNSAID, Matched
from rankscope.analysis.rank.view import RankView

__all__ = ["remarks"]

IDENTITIES = {
    "comms_id": "communication ids",
    "seq": "sequence numbers",
    "group names": "names of process groups",
}

LISTED = 8


def remarks(
    views: Sequence[RankView], matched: Matched, clocks: Clocks, steps: JobSteps, lossy: AbstractSet[int] = frozenset()
) -> list[str]:
    """Return whole sentences, the most important first.

    Args:
        views: the ranks of the window.
        matched: their matched calls.
        clocks: their alignment.
        steps: the job's steps.
        lossy: ranks whose lost records are reported elsewhere already.
    """
    found = []
    if steps.differ:
        by = sorted({steps.later[c] for c in steps.differ})
        found.append(
            f"the step numbers of {_ranks(views, steps.differ)} differ from the others' by "
            f"{', '.join(str(abs(n)) for n in by)}: steps were put together by the calls that the ranks share"
        )
    if steps.unmarked and len(steps.unmarked) < len(views):
        found.append(
            f"{_ranks(views, steps.unmarked)} recorded no step marks: its steps are those of the calls it shares"
        )
    columns = {rank: column for column, rank in enumerate(matched.ranks)}
    for identity, against in matched.contradicted.items():
        named = IDENTITIES.get(identity, identity)
        found.append(
            f"the {named} of {_ranks(views, [columns[r] for r in against])} contradict the order and the ends of the "
            "calls, and were not used"
        )
    for column, jumps in sorted(clocks.steps.items()):
        sizes = " and ".join(f"{jump.size / 1e6:+.3g} ms" for jump in jumps)
        clock = f"the clock of {_ranks(views, [column])}"
        found.append(f"{clock} was set by {sizes} within the window: its times are corrected")
    if clocks.doubtful:
        found.append(
            f"by the ends of its calls, {_ranks(views, clocks.doubtful)} does not read the clock of the host that its "
            "trace names"
        )
    if matched.by_ends:
        found.append(
            f"the peers of {matched.by_ends} sends and receives are not recorded: they are those whose kernels end "
            "together in every step, which only one pairing of all of them does"
        )
    unsaid = matched.unmatched.get(UNSAID, 0)
    if unsaid:
        found.append(
            f"{unsaid} kernels send or receive between ranks that nothing in the traces names, and did not run on all "
            "ranks of their group at once: who waits for whom in them is unknown, since their ends do not show it (two "
            "that always end together, in one way only). Record the operators too (ProfilerActivity.CPU), or by "
            "`rankscope run`, whose windows hold torch's flight recorder"
        )
    lost = [c for c, count in enumerate(matched.lost) if count and views[c].rank not in lossy]
    if lost:
        total = sum(matched.lost[c] for c in lost)
        records = "one record of a call that other ranks recorded is" if total == 1 else f"{total} records of calls are"
        found.append(f"{records} missing on {_ranks(views, lost)}: these calls were matched on the other ranks only")
    return found


def _ranks(views: Sequence[RankView], columns: Sequence[int]) -> str:
    numbers = ", ".join(str(views[c].rank) for c in columns[:LISTED]) + (", ..." if len(columns) > LISTED else "")
    return f"rank {numbers}" if len(columns) == 1 else f"ranks {numbers}"
