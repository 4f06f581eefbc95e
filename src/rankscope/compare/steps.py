"""The step of two runs: from unrecorded steps if both have them, and the significance of the difference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.compare.sides.noise import BETWEEN, REPEATS, combined, of_difference, of_runs, usual
from rankscope.compare.sides.side import Side
from rankscope.errors import AnalysisError
from rankscope.records.diff import DiffRow, DiffSide
from rankscope.records.report import ClusterReport
from rankscope.statistics.changes import changes

__all__ = ["FEWEST", "compare_steps", "is_device_bound"]

F64 = NDArray[np.float64]

DEVICE_BOUND_PCT = 10.0
"""Per cent of the recorded window. If a device is idle for less, it is the bottleneck of its job."""
FEWEST = 20
"""Least number of unrecorded steps; fewer are not a better measurement than the windows."""


def compare_steps(before: Side, after: Side) -> tuple[DiffSide, DiffSide, DiffRow]:
    """Return both steps and their difference; ``told`` if it exceeds the noise.

    Of a baseline, the mean of its runs since the last change is compared. The noise is what runs of one program differ
    by: as far as the drift within runs and the scatter of at least three of them show it; of fewer runs, also by class
    (``noise.BETWEEN``). Of recorded steps it is their scatter and that of the class.
    """
    unrecorded = min(len(before.unrecorded_ms), len(after.unrecorded_ms)) >= FEWEST
    older = _repeats(before) if unrecorded else [before.step_ms]
    newer = after.unrecorded_ms if unrecorded else after.step_ms
    medians = [_mean(older), usual(newer)]
    if None in medians:  # only reports
        medians = [side.report.verdict.step_ms for side in (before, after)]
    sides = [
        DiffSide(
            name=side.name,
            run_id=side.report.run.run_id,
            world_size=side.report.run.world_size,
            devices=list(side.report.run.devices),
            step_ms=median,
            steps=sum(map(len, runs)),
            step_source="unrecorded" if unrecorded else "recorded",
            runs=1 + len(side.replicates),
        )
        for side, runs, median in zip((before, after), (older, [newer]), medians, strict=True)
    ]
    one, other = medians
    row = DiffRow(kind="step", name="step", unit="ms", before=one, after=other, change=None)
    if one is not None and other is not None:
        row.change = other - one
        row.noise = _noise(before, after, older, newer, min(one, other), unrecorded)
        row.told = abs(row.change) > row.noise
    return sides[0], sides[1], row


def _repeats(before: Side) -> list[F64]:
    """Return the unrecorded steps of the runs of a baseline since their steps changed; the latest run is the last."""
    runs = [np.array(run.step_ms) for run in before.replicates if len(run.step_ms) >= FEWEST]
    runs.append(before.unrecorded_ms)
    try:
        found = changes([float(np.median(run)) for run in runs])
    except AnalysisError:  # without the package that finds changes, all runs count
        return runs
    return runs[found[-1].index :] if found else runs


def _mean(runs: Sequence[F64]) -> float | None:
    medians = [usual(run) for run in runs]
    known = [median for median in medians if median is not None]
    return sum(known) / len(known) if known else None


def _noise(before: Side, after: Side, older: Sequence[F64], newer: F64, step: float, unrecorded: bool) -> float:
    limit = "device_bound" if all(is_device_bound(side.report) for side in (before, after)) else "host_bound"
    between = BETWEEN[limit] * step
    if not unrecorded:
        return combined(of_difference(older[0], newer), between)
    return combined(of_runs(older, newer), between if len(older) < REPEATS else None)


def is_device_bound(report: ClusterReport) -> bool:
    """Return whether the devices are the bottleneck of a job."""
    idle = [rank.idle_pct for rank in report.ranks if rank.idle_pct is not None and rank.device != "CPU"]
    return bool(idle) and max(idle) < DEVICE_BOUND_PCT
