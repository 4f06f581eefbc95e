"""How much of the CPUs that a job may use is idle while it is recorded: more than that no further process can take
over."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rankscope.records.evidence import SpareCpus
from rankscope.records.rank import RankRecord

__all__ = ["spare_cpus"]


def spare_cpus(records: Sequence[RankRecord]) -> SpareCpus | None:
    """Return the idle share of the host with the least of it; None if no host was sampled."""
    shares: dict[str, list[float]] = {}
    cpus: dict[str, float] = {}
    for record in records:
        samples = [s for s in record.host_load if s.cpu_busy_ms is not None and s.cpus]
        if len(samples) > 1 and (ms := (samples[-1].time_ns - samples[0].time_ns) / 1e6) > 0:
            count = samples[-1].cpus or 0.0
            busy = ((samples[-1].cpu_busy_ms or 0.0) - (samples[0].cpu_busy_ms or 0.0)) / ms
            shares.setdefault(record.host, []).append(min(max(1.0 - busy / count, 0.0), 1.0))
            cpus[record.host] = count
    if not shares:
        return None
    host = min(shares, key=lambda h: fmean(shares[h]))
    return SpareCpus(host=host, cpus=cpus[host], idle=fmean(shares[host]))
