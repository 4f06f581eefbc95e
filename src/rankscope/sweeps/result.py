"""Make the table from the runs that have ended: steps of each run from its step log, and the advice of its report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankscope.compare.comparable import disturbed
from rankscope.compare.sides.noise import BETWEEN, usual
from rankscope.compare.sides.unrecorded import unrecorded_steps
from rankscope.compare.steps import FEWEST, is_device_bound
from rankscope.diagnose.advice.table import knobs
from rankscope.errors import RunDirError
from rankscope.records.report import Action, ClusterReport
from rankscope.records.sweep import SweepJob, SweepResult, SweepRow, SweepSetting
from rankscope.report.read import read_report
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.gains import Gain, gains
from rankscope.sweeps.order import order_in_words

__all__ = ["predicted", "result_of"]


@dataclass(slots=True)
class _Run:
    """Data of a run that has ended successfully."""

    steps: NDArray[np.float64]
    """Unrecorded steps, ms."""
    report: ClusterReport | None
    notes: list[str] = field(default_factory=list)
    disturbed: str = ""
    """What slowed it down besides its program, in words."""

    def step_ms(self, *, unrecorded: bool) -> float | None:
        own = usual(self.steps) if unrecorded else self.report.verdict.step_ms if self.report is not None else None
        return own if own else None


Open = Callable[[Path], AbstractContextManager[Path]]


def result_of(sweep: SweepDir, name: str, opened: Open = nullcontext) -> SweepResult:
    """Return the table of the runs that have ended so far.

    Args:
        sweep: its folder.
        name: as given by the user.
        opened: opens a run for reading, decrypted if it is encrypted. An encrypted run has no report, only its steps.

    Raises:
        ForeignFileError: the folder holds no sweep.
    """
    plan = sweep.plan()
    result = SweepResult(
        name=name,
        rows=[],
        repeats=plan.repeats,
        planned=len(plan.settings) * plan.repeats,
        order=order_in_words(plan),
    )
    jobs = sweep.ended(result.notes)
    result.ended = len(jobs)
    runs = {}
    for place, job in jobs.items():
        if not job.exit_code:
            with opened(sweep.path / job.folder) as plain:
                runs[place] = _read(plain)
    unrecorded = bool(runs) and all(len(run.steps) >= FEWEST for run in runs.values())
    result.step_source = "unrecorded" if unrecorded else "recorded"
    result.steps = sum(len(run.steps) for run in runs.values()) if unrecorded else 0
    steps = {place: ms for place, run in runs.items() if (ms := run.step_ms(unrecorded=unrecorded)) is not None}
    first = plan.settings[0].number
    found, known = gains(steps, first, _usual_noise(runs))
    result.noise_source = "repeats" if known else "usual"
    base = math.exp(found[first].usual) if first in found else None
    advice = _advice(runs, first)
    for setting in plan.settings:
        row = _row(setting, runs, jobs, steps)
        if setting.number in found:
            _fill(row, found[setting.number], base)
        meant = predicted(plan.settings[0].knobs, setting.knobs, advice)
        if meant is not None:
            row.predicted_ms, row.predicted_error_ms = meant.saves_ms, meant.error_ms
            row.predicted_at_most, row.predicted_by = meant.kind == "bound", meant.code
        result.rows.append(row)
    _doubt(result, list(runs.values()))
    return result


def _doubt(result: SweepResult, runs: Sequence[_Run]) -> None:
    """Add remarks on what may have disturbed runs. Without enough repeats no gain is then reported, because usual
    differences are those of a quiet machine."""
    words = Counter(run.disturbed or ("" if run.report else "they have no report") for run in runs)
    doubtful = len(runs) - words.pop("", 0)
    if not doubtful:
        return
    note = f"{doubtful} of {len(runs)} runs may not have been alone ({words.most_common(1)[0][0]})"
    if result.noise_source == "repeats":
        result.notes.append(f"{note}; their scatter is in the intervals")
        return
    result.notes.append(f"{note}: nothing is told apart without more repeats")
    for row in result.rows:
        row.told, row.noise_ms, row.gain_low_ms, row.gain_high_ms = False, None, None, None


def _read(folder: Path) -> _Run:
    notes: list[str] = []
    steps = unrecorded_steps(sorted(folder.glob("attempt_*/pulse/rank_*.bin.gz")), notes)
    try:
        report = read_report(folder)
    except RunDirError:
        return _Run(steps, None, notes)
    by = next(iter(disturbed(folder.name, report)), "").partition(": ")[2]
    return _Run(steps, report, notes, by)


def _usual_noise(runs: dict[tuple[int, int], _Run]) -> float:
    reports = [run.report for run in runs.values() if run.report is not None]
    return BETWEEN["device_bound" if reports and all(map(is_device_bound, reports)) else "host_bound"]


def _row(
    setting: SweepSetting,
    runs: dict[tuple[int, int], _Run],
    jobs: dict[tuple[int, int], SweepJob],
    steps: dict[tuple[int, int], float],
) -> SweepRow:
    own = {repeat: run for (number, repeat), run in sorted(runs.items()) if number == setting.number}
    by_repeat = sorted((repeat, ms) for (number, repeat), ms in steps.items() if number == setting.number)
    reports = [run.report for run in own.values() if run.report is not None]
    failed = [job for (number, _), job in sorted(jobs.items()) if number == setting.number and job.exit_code]
    notes = [f"{job.folder} ended with exit code {job.exit_code}" for job in failed]
    return SweepRow(
        setting=setting.number,
        name=setting.name,
        overrides=setting.overrides,
        runs=len(by_repeat),
        failed=len(failed),
        each_ms=[ms for _, ms in by_repeat],
        verdict=str(reports[-1].verdict.kind) if reports else "",
        notes=[*notes, *(note for run in own.values() for note in run.notes)],
    )


def _fill(row: SweepRow, gain: Gain, base: float | None) -> None:
    row.step_ms = math.exp(gain.usual)
    row.noise_ms = row.step_ms * math.expm1(gain.noise)
    if gain.change is None or base is None:
        return
    low, high = gain.change + gain.change_noise, gain.change - gain.change_noise
    row.gain_ms, row.gain_low_ms, row.gain_high_ms = (-base * math.expm1(own) for own in (gain.change, low, high))
    row.told = gain.told


def _advice(runs: dict[tuple[int, int], _Run], first: int) -> list[Action]:
    """Return the advice of the first setting's last report."""
    reports = [run.report for (number, _), run in sorted(runs.items()) if number == first and run.report is not None]
    return reports[-1].actions if reports else []


def predicted(before: Mapping[str, str], after: Mapping[str, str], advice: Sequence[Action]) -> Action | None:
    """Return the action of a report that changes what differs between two settings; None if none or several do.

    Gains of several actions do not add up.

    Args:
        before: arguments and variables of the setting of the report.
        after: those of another setting.
        advice: of the report.
    """
    turned = {_plain(name) for name in {*before, *after} if before.get(name) != after.get(name)}
    named = knobs()
    meant = [own for own in advice if own.saves_ms is not None and turned & set(named.get(own.code, ()))]
    return meant[0] if len(meant) == 1 else None


def _plain(name: str) -> str:
    """Return ``bucket_cap_mb`` for ``model.bucket-cap-mb``."""
    return name.rpartition(".")[2].replace("-", "_")
