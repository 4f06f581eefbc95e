"""Choice of the ranks whose traces are kept, made once the verdict from their columns is known, and followed by all
nodes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.listing import named_ranks
from rankscope.node.finish import finish_again, nodes_of, result_of
from rankscope.node.gathering.gather import Gatherer
from rankscope.node.gathering.holding import Holding
from rankscope.node.manifest import NodeResult
from rankscope.records.codec import to_json
from rankscope.records.report import ClusterReport
from rankscope.records.running.node_task import KeptTraces, NodeTask
from rankscope.records.spec import AgentSpec
from rankscope.rundir.claim import NodeClaim
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record

__all__ = ["choose", "decision", "keep_chosen", "limit_s", "was_held"]

_POLL_S = 0.1


def limit_s(task: NodeTask, *, head: bool) -> float:
    """Return the time limit in seconds: until the other nodes have placed theirs, or first until another node has made
    the report."""
    return task.gather_timeout_s + (0.0 if head else task.gather_timeout_s + task.report_timeout_s)


def choose(report: ClusterReport | None) -> KeptTraces:
    """Decide: the named ranks, for each of them a comparable rank that is not named, and rank 0.

    Args:
        report: made from the columns of all ranks; None if none could be made.
    """
    if report is None:
        return KeptTraces(why="no report could be made")
    verdict = report.verdict
    named = [rank for finding in report.findings if finding.kind == "straggler" for rank in finding.ranks]
    between = verdict.between.ranks if verdict.between is not None else []
    suspects = sorted({*verdict.ranks, *named, *between})
    if verdict.kind == "insufficient_data" and not suspects:
        return KeptTraces(why="there is no verdict")
    sound = [row.rank for row in report.ranks if row.compute_pct is not None and row.rank not in suspects]
    teams = sorted({tuple(row.ranks) for row in report.groups}, key=lambda ranks: (len(ranks), ranks))
    others = {_beside(suspect, sound, teams) for suspect in suspects} | {0}
    if not suspects:
        others |= set(sound[:2])  # if no rank is named, two to compare
    return KeptTraces(
        ranks=sorted({*suspects, *(rank for rank in others if rank is not None)}),
        suspects=suspects,
        why="the verdict names these ranks" if suspects else "the verdict names no rank",
    )


def _beside(suspect: int, sound: Sequence[int], teams: Sequence[Sequence[int]]) -> int | None:
    """Return the nearest unnamed rank of the smallest group that the suspect is in, else of all ranks."""
    for team in [*(team for team in teams if suspect in team), sound]:
        if peers := [rank for rank in sound if rank in team]:
            return min(peers, key=lambda rank: (abs(rank - suspect), rank))
    return None


def decision(run_dir: RunDir) -> KeptTraces | None:
    """Return the decision; None if there is none."""
    with contextlib.suppress(ForeignFileError):
        return read_record(KeptTraces, run_dir.kept)
    return None


def was_held(run_dir: RunDir, own: NodeResult) -> bool:
    """Return whether a node has, or reports, traces that wait for the decision."""
    placed = result_of(run_dir, own.node)
    return bool(own.held or (placed is not None and placed.held))


def keep_chosen(
    task: NodeTask,
    spec: AgentSpec,
    claim: NodeClaim,
    own: NodeResult,
    gatherer: Gatherer,
    holding: Holding,
    report: ClusterReport | None,
    *,
    head: bool,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Decide or wait for the decision, follow it, and update this node's result and run.json.

    Args:
        task: of this node.
        spec: specification of the ranks.
        claim: this node's place in the run.
        own: this node's result as it was placed.
        gatherer: knows what was placed.
        holding: has the traces.
        report: on the head, if there is one.
        head: whether this node has written run.json.
        pause: sleeps for the given number of seconds.
        clock: in seconds, monotonic.

    Returns:
        Why run.json is not signed, if it had to be.

    Raises:
        OSError: the run directory cannot be read or written.
    """
    run_dir, placing = RunDir(Path(claim.run_dir)), gatherer.placing
    deadline = clock() + limit_s(task, head=head)
    if head:
        with contextlib.suppress(RunDirError):  # an earlier helper has decided
            placing.record(run_dir.kept, to_json(choose(report)))
    while (kept := decision(run_dir)) is None and not head and clock() < deadline:
        pause(_POLL_S)
    holding.settle(kept, gatherer.placed_bytes())
    own.records, own.held = gatherer.records(), 0
    own.files = {**own.files, **placing.sums}
    if head or kept is None:
        own.notes = [*own.notes, in_words(kept)]
    own.notes += [f"{claim.node}: {name} stays on its node: {why}" for name, why in sorted(holding.left.items())]
    placing.again(run_dir.node_result(claim.node), to_json(own))
    if not head and kept is not None:
        return []
    while head and clock() < deadline:
        if not any((r := result_of(run_dir, node)) is not None and r.held for node in nodes_of(run_dir)):
            break
        pause(_POLL_S)
    return finish_again(task, spec, claim, own)


def in_words(kept: KeptTraces | None) -> str:
    """Describe the decision, for run.json and for the report."""
    if kept is None:
        return "gather.keep=suspects: no decision came, so all traces of this node are kept"
    if kept.ranks is None:
        return f"gather.keep=suspects: all traces are kept, since {kept.why}"
    named = f"at fault: {named_ranks(kept.suspects)}; the others to compare with" if kept.suspects else kept.why
    return (
        f"gather.keep=suspects: whole traces are kept of {named_ranks(kept.ranks)} ({named}); of all other ranks "
        "their columns, from which this report is made"
    )
