"""HTA's numbers of launches over our columns: how long they take, how long they wait, and how many wait at once.

Source: HolisticTraceAnalysis 0.5.0, ``hta.analyzers.cuda_kernel_analysis`` and ``trace_counters``.
"""

from __future__ import annotations

import numpy as np

from rankscope.analysis.hta.events import HtaRank
from rankscope.analysis.hta.numbers import Record, described

__all__ = ["launch_statistics", "queue_length"]

_RUNTIME_CUTOFF_US = 50
_LAUNCH_DELAY_CUTOFF_US = 100
_FULL_QUEUE = 1024
"""HTA's ``CUDA_MAX_LAUNCH_QUEUE_PER_STREAM``."""


def launch_statistics(rank: HtaRank) -> Record:
    """Summarise launches: how many, their three times, and HTA's three kinds of conspicuous ones."""
    events, rows = rank.trace.events, rank.launched
    launch = events.launch[rows]
    cpu, gpu = events.duration[launch] / 1000, events.duration[rows] / 1000
    delay = np.maximum(events.start[rows] - events.end[launch], 0) / 1000
    return {
        "launches": len(rows),
        **{
            f"median_{name}(us)": float(np.median(times)) if len(rows) else None
            for name, times in (("cpu_duration", cpu), ("gpu_duration", gpu), ("launch_delay", delay))
        },
        "short_gpu_kernels": int(((cpu <= _RUNTIME_CUTOFF_US) & (gpu < cpu)).sum()),
        "runtime_outliers": int((cpu > _RUNTIME_CUTOFF_US).sum()),
        "launch_delay_outliers": int((delay > _LAUNCH_DELAY_CUTOFF_US).sum()),
    }


def queue_length(rank: HtaRank) -> list[Record]:
    """Return how many launched kernels wait on each stream, at each change, and how long its queue was full."""
    events, rows = rank.trace.events, rank.launched
    whole = int(events.start.max()) - int(events.start.min())
    found = []
    for stream in np.unique(events.stream[rows]).tolist():
        own = rows[events.stream[rows] == stream]
        times = np.concatenate((events.start[events.launch[own]], events.start[own]))
        change = np.repeat(np.array([1, -1], np.int64), len(own))
        order = np.argsort(times, kind="stable")
        length = np.cumsum(change[order])
        full = float(np.diff(times[order])[length[:-1] >= _FULL_QUEUE].sum())
        found.append(
            {
                "stream": stream,
                **described(length * 1.0),
                "duration_at_max_queue_length": full / 1000,
                "relative_duration_at_max_queue_length": full / whole if whole else 0.0,
            }
        )
    return found
