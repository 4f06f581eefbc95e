"""The job's steps that no rank recorded, from its step logs: recorded ones are slower, by 5 to 100 %."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankscope.between.step_logs import last_attempt, read_step_log
from rankscope.errors import ForeignFileError
from rankscope.records.running.step_log import ASKED, RECORDED
from rankscope.statistics.step_time import sync_interval

__all__ = ["unrecorded_steps"]

F64 = NDArray[np.float64]

SETTLED = 10
"""Number of first steps that are left out, because they include compilation, allocation and the choice of
algorithms."""
RANKS = 64
"""Number of logs that are read, because the ranks of a job step together."""


def unrecorded_steps(paths: Sequence[Path], notes: list[str]) -> F64:
    """Return step times in ms, in order: the median over the ranks, each a mean over one synchronisation interval of
    the host; without recorded steps and without the step after a window. Empty without logs."""
    _, files = last_attempt(paths, notes)
    columns: list[F64] = []
    flags: list[NDArray[np.bool_]] = []
    for rank, path in list(files.items())[:RANKS]:
        try:
            log = read_step_log(path)
        except ForeignFileError as error:
            notes.append(f"the step log of rank {rank} could not be read: {error}")
            continue
        columns.append(log.column("step"))
        flags.append((log.flags() & (RECORDED | ASKED)).astype(np.bool_))
    size = min(map(len, columns), default=0)
    if size <= SETTLED:
        return np.empty(0)
    step = np.stack([column[:size] for column in columns])
    recorded: NDArray[np.bool_] = np.logical_or.reduce([own[:size] for own in flags])
    left_out = recorded.copy()
    left_out[1:] |= recorded[:-1]
    left_out[:SETTLED] = True
    step = np.where((step > 0) & ~left_out, step, np.nan)
    known = np.flatnonzero(~np.isnan(step).all(axis=0))
    if not len(known):
        return np.empty(0)
    job = np.nanmedian(step[:, known], axis=0)
    interval = max(sync_interval(job[-2048:].tolist()), 1)
    whole = len(job) // interval * interval
    return np.asarray(job[len(job) - whole :].reshape(-1, interval).mean(axis=1), np.float64)
