"""Make run.json from the results of all nodes: which ranks had to record which window, and the result of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rankscope.limits import absent_ranks
from rankscope.listing import named_ranks
from rankscope.records.from_script import RunMark
from rankscope.records.manifest import FileSum, RunManifest, WindowRanks
from rankscope.records.rank import RankRecord
from rankscope.records.spec import ScheduleSpec

__all__ = ["NodeResult", "build_manifest"]


@dataclass(kw_only=True)
class NodeResult:
    """Results of one node, in the file that it leaves for the node that writes the manifest."""

    node: str
    host: str
    lives: list[RankRecord]
    records: list[RankRecord]
    notes: list[str] = field(default_factory=list)
    exit_code: int | None = None
    """Exit code of this node's launcher; None if it was killed."""
    held: int = 0
    """Number of traces that wait on the node for the verdict."""
    files: dict[str, FileSum] = field(default_factory=dict)
    """Files that this node has placed, by path in the run directory."""


_MOST_MESSAGES = 20
_NOT_ARMED = (
    "no rank reached `import torch` under the agent: the command failed before it, runs Python with -I or -E or an "
    "empty environment, or sets PYTHONPATH anew instead of adding to it (PYTHONPATH=src:$PYTHONPATH)"
)
_NO_STEP = (
    "no training step was seen: no torch.optim optimizer stepped, no DDP or FSDP2 model ran forward, no DataLoader was "
    "read. If the job does train, call rankscope.step() at the end of each step"
)


def build_manifest(
    results: Sequence[NodeResult],
    *,
    run_id: str,
    argv: list[str],
    config: dict[str, Any],
    schedule: ScheduleSpec,
    versions: dict[str, str],
    notes: Sequence[str] = (),
) -> RunManifest:
    """Combine the nodes' results and list every rank that is missing, with the reason if one is known."""
    processes = sorted(
        (process for r in results for process in r.lives), key=lambda process: (process.attempt, process.rank)
    )
    records = [record for r in results for record in r.records]
    by_window: dict[tuple[int, int], list[RankRecord]] = defaultdict(list)
    for record in records:
        by_window[record.attempt, record.window or 0].append(record)
    for process in processes:
        if process.open_window is not None:
            by_window[process.attempt, process.open_window]  # expected, even if no rank left a record
    windows = [
        _window(attempt, number, members, [process for process in processes if process.attempt == attempt])
        for (attempt, number), members in sorted(by_window.items())
    ]
    everyone = [*processes, *records]
    remarks = list(notes)
    for result in results:
        remarks += result.notes
    if windows:
        remarks += _left_out(processes, records, schedule)
    else:
        remarks += _why_nothing(processes, schedule)
    remarks += _messages(processes, records)
    return RunManifest(
        run_id=run_id,
        argv=argv,
        config=config,
        versions=versions,
        hosts=sorted({record.host for record in everyone} | {r.host for r in results}),
        world_size=max((record.world_size for record in everyone), default=None),
        attempts=max((record.attempt for record in everyone), default=-1) + 1,
        exit_code=_exit_code(results),
        windows=windows,
        lives=[replace(process, marks=[]) for process in processes],
        notes=remarks,
        marks=_marks(processes),
    )


def _marks(processes: Sequence[RankRecord]) -> list[RunMark]:
    """Join the marks of ranks, which usually are the same on all of them. ``processes``: in order of rank."""
    found: dict[tuple[int, int, str, int], RunMark] = {}
    for process in processes:
        seen: Counter[tuple[int, str]] = Counter()  # a script may make the same mark twice in a step
        for mark in process.marks:
            seen[mark.step, mark.name] += 1
            key = (process.attempt, mark.step, mark.name, seen[mark.step, mark.name])
            if key in found:
                found[key].ranks += 1
            else:
                found[key] = RunMark(
                    attempt=process.attempt, step=mark.step, name=mark.name, rank=process.rank, values=mark.values
                )
    return sorted(found.values(), key=lambda mark: (mark.attempt, mark.step))


def _exit_code(results: Sequence[NodeResult]) -> int | None:
    """Return the exit code of the job: that of a node on which it failed, else None if it is unknown on one node, else
    0."""
    codes = [result.exit_code for result in results]
    failed = next((code for code in codes if code), None)
    return failed if failed is not None else (None if None in codes else 0)


def _window(attempt: int, number: int, members: list[RankRecord], processes: list[RankRecord]) -> WindowRanks:
    world = max(one.world_size for one in [*members, *processes])
    present = {member.rank: member for member in members}
    process_of = {process.rank: process for process in processes}
    absent, more = absent_ranks(world, present)
    due = {rank: _missing(rank, attempt, number, world, process_of.get(rank)) for rank in absent} | present
    said = _mismatches(members)
    if more:
        said.append(f"{more} ranks of {world} besides the {len(absent)} named as missing left no record either")
    records = [due[rank] for rank in sorted(due)]
    return WindowRanks(attempt=attempt, window=number, world_size=world, records=records, mismatches=said)


def _missing(rank: int, attempt: int, number: int, world: int, process: RankRecord | None) -> RankRecord:
    if process is None:
        reason = (
            "no word from this rank: its node left nothing here (is run.dir the same folder on every node? "
            "If it is not, `rankscope collect` brings the parts together)"
        )
        return RankRecord(
            rank=rank, local_rank=-1, world_size=world, host="", pid=-1, attempt=attempt, window=number,
            status="missing", reason=reason,
        )  # fmt: skip
    reason = process.reason or f"counted {process.steps_counted} steps and did not reach this window"
    return RankRecord(**{**vars(process), "window": number, "status": "missing", "reason": reason})


def _mismatches(members: list[RankRecord]) -> list[str]:
    """Report ranks that recorded other steps than most, or counted them by other signals."""
    mismatches = []
    for what, field_name in (("first recorded step", "first_step"), ("way of counting steps", "step_source")):
        groups: dict[Any, list[int]] = defaultdict(list)
        for member in members:
            value = getattr(member, field_name)
            if member.trace is not None and value is not None:
                groups[value].append(member.rank)
        if len(groups) > 1:
            listed = "; ".join(f"{value} on {named_ranks(ranks)}" for value, ranks in sorted(groups.items(), key=str))
            mismatches.append(f"the {what} differs between ranks: {listed}")
    return mismatches


_NOT_AFFORDED = (
    "windows every so many steps may record budget.step_pct percent of the steps, and the job was too short for one; "
    "raise it, or plan windows with schedule.repeat instead of schedule.every"
)


def _messages(processes: list[RankRecord], records: list[RankRecord]) -> list[str]:
    """Return what agents and helpers had to say of ranks, besides the reasons why windows failed."""
    ranks: dict[str, set[int]] = defaultdict(set)
    reasons = {(record.rank, f"window {record.window}: {record.reason}") for record in records if record.reason}
    for one in [*processes, *records]:
        for note in one.notes:
            if (one.rank, note) not in reasons:
                ranks[note].add(one.rank)
    said = [f"{named_ranks(found)}: {note}" for note, found in ranks.items()]
    more = len(said) - _MOST_MESSAGES
    return said if more <= 0 else [*said[:_MOST_MESSAGES], f"{more} more messages of ranks are in run.json"]


def _left_out(processes: list[RankRecord], records: list[RankRecord], schedule: ScheduleSpec) -> list[str]:
    """Report planned windows that the last attempt did not reach. With ``every`` their number is not planned."""
    if schedule.every or not processes:
        return []
    attempt = max(process.attempt for process in processes)
    opened = [record for record in records if record.attempt == attempt and record.origin == "plan"]
    missing = schedule.repeat - len({record.window for record in opened})
    steps = max(process.steps_counted for process in processes if process.attempt == attempt)
    if missing <= 0:
        return []
    return [f"the job ended after {steps} steps, before {missing} of {schedule.repeat} planned windows opened"]


def _why_nothing(processes: list[RankRecord], schedule: ScheduleSpec) -> list[str]:
    """Explain why no rank opened a window, and what to do."""
    if not processes:
        return [_NOT_ARMED]
    most = max(processes, key=lambda process: process.steps_counted)
    if most.steps_counted == 0:
        return [_NO_STEP]
    window = schedule.window(0)
    if window is not None and most.steps_counted > window.last and schedule.every:
        return [_NOT_AFFORDED]
    counted = f"{most.steps_counted} steps (counted by {most.step_source})"
    remedy = "shorten the schedule with -S schedule=short or -S schedule.skip_first=1"
    begins = f"the first window records from step {window.first}" if window else "no window is scheduled"
    return [f"the job ended after {counted} and {begins}: {remedy}"]
