"""Every step of a run from its step logs: a curve of step time, one row per rank, and whether the windows were typical.

Files are read one by one and twice, first for the windows, then for the times, so that a thousand ranks need the memory
of one. Steps in which any rank recorded are in the curve and in no median, because ranks that are in step slow each
other down. The step after a window is in no median either, because it includes closing the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.between.step_logs import last_attempt, read_step_log
from rankscope.errors import AnalysisError, ForeignFileError
from rankscope.limits import absent_ranks
from rankscope.records.run_steps import RankStepTimes, RecordedRange, RunSteps, StepBucket
from rankscope.records.running.step_log import ASKED, RECORDED
from rankscope.statistics.step_time import sync_interval

__all__ = ["read_step_logs"]

MAX_BUCKETS = 400
AROUND = 20
"""Number of steps on either side of a window that show whether it was recorded in a typical part of the run."""
TYPICAL_PCT = 10.0
"""Largest difference between the median around the windows and that of the run that counts as typical."""
DRIFT_STEPS = 40
"""With fewer steps, a quarter of them is too few for a median."""
INTERVAL_STEPS = 2048
"""The synchronisation interval of a run is determined from this many of its last steps."""

_ENTRY = np.dtype([("step", "<u4"), ("input", "<u4"), ("gc", "<u4"), ("recorded", "<u4")])

Floats = npt.NDArray[np.float64]


def read_step_logs(paths: Sequence[Path], world_size: int | None = None) -> RunSteps | None:
    """Read the step logs of the last attempt; None without any.

    Args:
        paths: ``.../attempt_K/pulse/rank_NNNNN.bin.gz``; others are ignored.
        world_size: number of ranks, if known, to name those without a log.

    Raises:
        AnalysisError: there are step logs, but none can be read.
    """
    notes: list[str] = []
    attempt, files = last_attempt(paths, notes)
    recorded = np.zeros(0, bool)
    intervals: dict[int, int] = {}
    for rank, path in files.items():
        try:
            own = _read(path)
        except ForeignFileError as error:
            notes.append(f"the step times of rank {rank} could not be read: {error}")
            continue
        flags = own["recorded"] > 0
        intervals[rank] = sync_interval(own["step"][~flags & (own["step"] > 0)][-INTERVAL_STEPS:].tolist())
        longer, shorter = (flags, recorded) if len(flags) > len(recorded) else (recorded, flags)
        recorded = longer.copy()
        recorded[: len(shorter)] |= shorter
    if not len(recorded):
        if files:
            raise AnalysisError("; ".join(notes))
        return None
    absent, more = absent_ranks(world_size or 0, files)
    if absent:
        notes.append(f"no step times of {len(absent) + more} of {world_size} ranks, the first of them rank {absent[0]}")
    width = _whole(-(-len(recorded) // MAX_BUCKETS), max(intervals.values()))
    starts = np.arange(0, len(recorded), width)
    unprofiled = ~recorded
    unprofiled[1:] &= ~recorded[:-1]
    near = _near(recorded) & unprofiled
    rows, curves, around = [], [], []
    for rank, length in intervals.items():
        entries = np.zeros(len(recorded), _ENTRY)
        own = _read(files[rank])
        entries[: len(own)] = own
        step_ms = np.where(entries["step"] > 0, entries["step"] / 1e3, np.nan)
        averaged = _averaged(step_ms, unprofiled, length)
        rows.append(_row(rank, entries, step_ms, averaged, unprofiled))
        curves.append(_curve(step_ms, entries["input"] / 1e3, starts))
        around.append(averaged[near])
    report = RunSteps(attempt=attempt, steps=len(recorded), rows=rows, notes=notes)
    report.windows = [RecordedRange(first=first, last=last) for first, last in _runs(recorded)]
    report.buckets = list(_buckets(list(intervals), curves, starts, len(recorded)))
    report.unprofiled_steps = max(row.steps for row in rows)
    report.median_ms = _median([row.median_ms for row in rows])
    # If most of the run is around its windows, it would be compared with itself.
    if report.unprofiled_steps >= 2 * np.count_nonzero(near):
        report.around_ms = _median([_known_median(own) for own in around])
    if report.median_ms and report.around_ms:
        report.typical = 100 * abs(report.around_ms - report.median_ms) <= TYPICAL_PCT * report.median_ms
    return report


def _read(path: Path) -> npt.NDArray[Any]:
    log = read_step_log(path)
    found = np.zeros(log.steps, _ENTRY)
    for name in ("step", "input", "gc"):
        found[name] = np.repeat(log.entries[name], log.spans)
    found["recorded"] = log.flags() & RECORDED
    found["step"][(log.flags() & ASKED) > 0] = 0  # longer by what the log itself has cost: as if not timed
    return found


def _runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last index of each run of True."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return [(int(first), int(end) - 1) for first, end in edges.reshape(-1, 2)]


def _near(recorded: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    near = np.zeros_like(recorded)
    for first, last in _runs(recorded):
        near[max(0, first - AROUND) : last + 1 + AROUND] = True
    return near


def _whole(width: int, length: int) -> int:
    """Return the next multiple of ``length``, so that each point of the curve has the same number of synchronisations
    of the host."""
    return -(-width // length) * length


def _averaged(step_ms: Floats, counted: npt.NDArray[np.bool_], length: int) -> Floats:
    """Return each counted step as the mean over the ``length`` steps that end with it; NaN for all others.

    The first ``length - 1`` counted steps have no such mean.
    """
    numbers = np.flatnonzero(counted & ~np.isnan(step_ms))
    times = step_ms[numbers]
    averaged = np.full(len(step_ms), np.nan)
    if len(times) >= length:
        averaged[numbers[length - 1 :]] = np.lib.stride_tricks.sliding_window_view(times, length).mean(axis=1)
    return averaged


def _row(
    rank: int, entries: npt.NDArray[Any], step_ms: Floats, averaged: Floats, unprofiled: npt.NDArray[np.bool_]
) -> RankStepTimes:
    numbers = np.flatnonzero(unprofiled & ~np.isnan(step_ms))
    times = step_ms[numbers]
    row = RankStepTimes(rank=rank, steps=len(times))
    if not len(times):
        return row
    longest = int(np.argmax(times))
    row.median_ms, row.p99_ms = _known_median(averaged), float(np.percentile(times, 99))
    row.longest_ms, row.longest_step = float(times[longest]), int(numbers[longest])
    row.input_pct = float(entries["input"][numbers].sum() / 1e3 / times.sum() * 100)
    row.gc_ms_per_step = float(entries["gc"][numbers].mean() / 1e3)
    if len(times) >= DRIFT_STEPS:
        known = averaged[~np.isnan(averaged)]
        quarter = len(known) // 4
        row.drift_pct = float(np.median(known[-quarter:]) / np.median(known[:quarter]) - 1) * 100
    return row


def _curve(step_ms: Floats, input_ms: Floats, starts: npt.NDArray[np.intp]) -> Floats:
    """Per bucket of one rank: mean step, longest step, mean input; NaN where no step was timed."""
    known = ~np.isnan(step_ms)
    counts = np.add.reduceat(known, starts, dtype=np.int64)
    counts_or_nan = np.where(counts > 0, counts, np.nan)
    mean = np.add.reduceat(np.where(known, step_ms, 0.0), starts) / counts_or_nan
    longest = np.fmax.reduceat(step_ms, starts)
    waited = np.add.reduceat(np.where(known, input_ms, 0.0), starts) / counts_or_nan
    return np.stack([mean, longest, waited])


def _buckets(
    ranks: Sequence[int], curves: Sequence[Floats], starts: npt.NDArray[np.intp], steps: int
) -> Iterator[StepBucket]:
    every = np.stack(curves)
    ends = [*starts[1:].tolist(), steps]
    for index, (first, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        here = every[:, :, index]
        timed = np.flatnonzero(~np.isnan(here[:, 0]))
        bucket = StepBucket(first=first, last=end - 1)
        if len(timed):
            mean, longest, waited = here[timed].T
            slow, waits = int(np.argmax(longest)), int(np.argmax(waited))
            bucket.step_ms = float(np.median(mean))
            bucket.slowest_ms, bucket.slowest_rank = float(longest[slow]), ranks[timed[slow]]
            bucket.input_ms, bucket.input_rank = float(waited[waits]), ranks[timed[waits]]
        yield bucket


def _known_median(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _median(values: Sequence[float | None]) -> float | None:
    return _known_median(np.array([np.nan if value is None else value for value in values], float))
