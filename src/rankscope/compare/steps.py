"""The step of two runs: from unrecorded steps if both have them, and the significance of the difference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.compare.sides.noise import BETWEEN, between_runs, combined, of_difference, usual
from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffRow, DiffSide
from rankscope.records.report import ClusterReport

__all__ = ["FEWEST", "compare_steps", "is_device_bound"]

F64 = NDArray[np.float64]

DEVICE_BOUND_PCT = 10.0
"""Per cent of the recorded window. If a device is idle for less, it is the bottleneck of its job."""
FEWEST = 20
"""Least number of unrecorded steps; fewer are not a better measurement than the windows."""


def compare_steps(before: Side, after: Side) -> tuple[DiffSide, DiffSide, DiffRow]:
    """Return both steps and their difference; ``told`` if it exceeds the noise.

    The noise combines the scatter of the steps of each run with the usual difference between two runs of one program:
    by the runs of the baseline if there are at least three, else by class (``noise.BETWEEN``).
    """
    unrecorded = min(len(before.unrecorded_ms), len(after.unrecorded_ms)) >= FEWEST
    series = [side.unrecorded_ms if unrecorded else side.step_ms for side in (before, after)]
    medians = [usual(own) for own in series]
    if None in medians:  # only reports
        medians = [side.report.verdict.step_ms for side in (before, after)]
    sides = [
        DiffSide(
            name=side.name,
            run_id=side.report.run.run_id,
            world_size=side.report.run.world_size,
            devices=list(side.report.run.devices),
            step_ms=median,
            steps=len(own),
            step_source="unrecorded" if unrecorded else "recorded",
            runs=1 + len(side.replicates),
        )
        for side, own, median in zip((before, after), series, medians, strict=True)
    ]
    one, other = medians
    row = DiffRow(kind="step", name="step", unit="ms", before=one, after=other, change=None)
    if one is not None and other is not None:
        row.change = other - one
        row.noise = _noise(before, after, series, min(one, other), unrecorded)
        row.told = abs(row.change) > row.noise
    return sides[0], sides[1], row


def _noise(before: Side, after: Side, series: list[F64], step: float, unrecorded: bool) -> float:
    repeated = between_runs(
        [
            *(m for run in before.replicates if (m := usual(np.array(run.step_ms))) is not None and unrecorded),
            *([m for m in (usual(series[0]),) if m is not None]),
        ]
    )
    limit = "device_bound" if all(is_device_bound(side.report) for side in (before, after)) else "host_bound"
    between = repeated if repeated is not None else BETWEEN[limit] * step
    return combined(of_difference(series[0], series[1]), between)


def is_device_bound(report: ClusterReport) -> bool:
    """Return whether the devices are the bottleneck of a job."""
    idle = [rank.idle_pct for rank in report.ranks if rank.idle_pct is not None and rank.device != "CPU"]
    return bool(idle) and max(idle) < DEVICE_BOUND_PCT
