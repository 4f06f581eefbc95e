"""CPU time that processes outside the job used on its hosts while it was recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from rankscope.records.rank import HostSample, RankRecord

__all__ = ["cpu_of_others"]

Counter = Literal["cpu_busy_ms", "host_busy_ms"]


def cpu_of_others(records: Iterable[RankRecord], counter: Counter = "cpu_busy_ms") -> dict[str, float]:
    """Return by host how many CPUs processes outside the job kept busy, as a mean over the windows.

    What the job used is counted twice: by its processes, of which new ones are found late, and which may descend from
    another launcher; and by the threads of its ranks, which are not all of it. The larger count is used.

    Args:
        records: of the ranks, for each window. Hosts without counts are left out.
        counter: of the samples: the CPUs that the job may use, or all of the host.
    """
    busy: dict[tuple[str, int, int], tuple[float, float]] = {}
    threads: dict[tuple[str, int, int], float] = {}
    for record in records:
        key = (record.host, record.attempt, record.window or 0)
        threads[key] = threads.get(key, 0.0) + _by_threads(record)
        rates = _rates(record.host_load, counter)
        if rates is not None:
            busy[key] = rates
    hosts: dict[str, list[float]] = {}
    for key, (all_busy, job) in busy.items():
        hosts.setdefault(key[0], []).append(max(all_busy - max(job, threads[key]), 0.0))
    return {host: sum(rates) / len(rates) for host, rates in hosts.items()}


def _rates(samples: list[HostSample], counter: Counter) -> tuple[float, float] | None:
    """Return the number of busy CPUs, and of those that the job's processes kept busy."""
    known = [
        (sample.time_ns / 1e6, busy, job)
        for sample in samples
        if (busy := getattr(sample, counter)) is not None and (job := sample.job_cpu_ms) is not None
    ]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    ms, busy, job = (last - first for first, last in zip(known[0], known[-1], strict=True))
    return busy / ms, job / ms


def _by_threads(record: RankRecord) -> float:
    """Return the number of CPUs that the threads of a rank kept busy in its recorded steps."""
    steps = record.steps.inside_ms
    if not sum(steps):
        return 0.0
    return sum(sum(thread.cpu_ms[: len(steps)]) for thread in record.threads) / sum(steps)
