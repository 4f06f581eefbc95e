"""One verdict from two sources: the windows, which show why, and the log of all steps, which covers the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankscope.between.judge import judge_logs
from rankscope.between.step_logs import MAX_STEPS, StepTimes, last_attempt, read_step_log
from rankscope.causes.wording import amount
from rankscope.errors import ForeignFileError
from rankscope.listing import named_ranks
from rankscope.records.report import ClusterReport, Verdict
from rankscope.records.running.between import BetweenVerdict, SlowPattern
from rankscope.statistics.thresholds import MATTERS

__all__ = ["add_between_windows", "join"]

MOST_LOGGED = 4 * MAX_STEPS
"""Number of steps of all ranks together that are read for the verdict, at 80 bytes each in memory. With more ranks,
fewer per rank are read."""
_BOUND = ("host_bound", "comm_bound", "memory_bound", "pipeline")
"""Verdicts on the structure of the whole job. In a pipeline ranks wait for each other by schedule, which step logs
cannot distinguish from lateness."""


def add_between_windows(report: ClusterReport, step_logs: Sequence[Path], *, on_host: bool, shared: bool) -> None:
    """Judge the step logs of the last attempt and combine the result with the verdict of the windows.

    Args:
        report: with its verdict.
        step_logs: files of the run; without any nothing is added.
        on_host: whether the job trains on CPUs.
        shared: whether several ranks train on one device.
    """
    notes: list[str] = []
    logs: dict[int, StepTimes] = {}
    read = 0
    for rank, path in last_attempt(step_logs, notes)[1].items():
        try:
            logs[rank] = read_step_log(path)
        except ForeignFileError:
            continue  # reported by the table of steps
        read += len(logs[rank].entries)
        if read > MOST_LOGGED:
            notes.append(f"the step logs of {len(logs)} ranks were compared; more do not fit into memory")
            break
    if not logs:
        return
    between = judge_logs(logs, on_host=on_host, devices=not on_host, shared=shared)
    between.notes += notes
    windows = [(w.first, w.last) for w in report.pulse.windows] if report.pulse else []
    join(report.verdict, between, windows)


def join(verdict: Verdict, between: BetweenVerdict, windows: Sequence[tuple[int, int]]) -> None:
    """Add the verdict of the step logs to that of the windows; the result names the ranks that either of them names.

    Args:
        verdict: of the windows; changed.
        between: of the step logs; :attr:`BetweenVerdict.window` is set.
        windows: first and last step of each, including warm-up.
    """
    verdict.between = between
    if between.kind == "insufficient_data":
        return
    named = [p for p in between.patterns if p.accuses]
    if verdict.kind == "pipeline" and named:
        between.window = "The ranks are stages of a pipeline, which wait for each other by schedule: nobody is named."
        between.kind, between.ranks = "nobody", []
        return
    between.window = _side_by_side(verdict, between, named, windows) if windows else ""
    if named and verdict.kind not in ("straggler", *_BOUND) and named[0].cost_ms >= MATTERS * (between.step_ms or 0.0):
        _name(verdict, between, named[0])
    elif between.window and (named or verdict.kind == "straggler"):
        verdict.why.append(between.window)


def _name(verdict: Verdict, between: BetweenVerdict, worst: SlowPattern) -> None:
    """Replace the verdict by that of the step logs, because the windows name no rank."""
    before = verdict.sentence
    verdict.kind, verdict.ranks = "straggler", list(worst.ranks)
    verdict.cause = "input_stall" if worst.place == "input" else None
    verdict.cost_ms_per_step, verdict.cost_error_ms = worst.cost_ms, worst.error_ms
    verdict.step_ms, verdict.p_value = between.step_ms, worst.p_value
    verdict.share_of_steps_pct = 100.0 * worst.seen / between.steps if between.steps else None
    verdict.confidence = "medium"
    verdict.sentence = worst.sentence
    verdict.why = [
        f"So says the log of all steps: {between.steps:,} steps of {amount(between.step_ms or 0.0)} were compared.",
        *([between.window] if between.window else []),
        f"The windows alone: {before}",
    ]
    verdict.next = [_next(worst)]


def _next(worst: SlowPattern) -> str:
    """Return the first next step."""
    ranks, do = named_ranks(worst.ranks), "does" if len(worst.ranks) == 1 else "do"
    if worst.place == "input":
        return f"Look at what the data loader of {ranks} does in these steps: storage, decoding, number of workers."
    if worst.place == "gc":
        return "Call gc.freeze() after the setup and gc.collect() every so many steps on all ranks at once."
    if worst.kind in ("every", "turns"):
        return f"Look for what {ranks} {do} every {worst.period} steps: logging, saving, a metric, a callback."
    return f"Record a window in such steps (rankscope capture RUN), which shows what {ranks} {do} in them."


def _side_by_side(
    verdict: Verdict, between: BetweenVerdict, named: Sequence[SlowPattern], windows: Sequence[tuple[int, int]]
) -> str:
    """State in a sentence whether both sources agree; empty if there is nothing to report."""
    if verdict.kind == "straggler" and named:
        common = set(verdict.ranks) & set(between.ranks)
        if common:
            return f"The log of all steps agrees on {named_ranks(common)}: {named[0].sentence}"
        return (
            f"The witnesses disagree: the window names {named_ranks(verdict.ranks)}, and of the steps between the "
            f"windows the log says: {named[0].sentence}"
        )
    if verdict.kind == "straggler":
        return (
            f"In {between.steps:,} steps between the windows no rank stands out: what the window saw is not usual, or "
            "lies where the step log cannot see it, inside of the backward."
        )
    if not named:
        return ""
    inside = any(_covers(named[0], first, last) for first, last in windows)
    first, last = windows[0]
    where = f"steps {first:,} to {last:,}" if len(windows) == 1 else f"{len(windows)} windows"
    if inside:
        return f"The recorded steps ({where}) have such a step, and by themselves they name nobody."
    return f"The recorded steps ({where}) have no such step in them, so that the windows cannot show it."


def _covers(pattern: SlowPattern, first: int, last: int) -> bool:
    """Return whether a pattern has a step in a window. For irregular patterns the steps are not known."""
    if pattern.period:
        step = first + (pattern.first - first) % pattern.period
        return step <= last
    return first <= (last if pattern.last is None else pattern.last) and last >= pattern.first
