"""Health of devices and hosts over the recorded windows, from the samples that the node helpers added to the ranks'
records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TypeVar

import numpy as np

from rankscope.analysis.tables.cpu_of_others import cpu_of_others
from rankscope.records.rank import HealthSample, HostSample, RankRecord
from rankscope.records.rows import HealthRow

__all__ = ["health_rows"]

T = TypeVar("T", HealthSample, HostSample)


def health_rows(records: Iterable[RankRecord]) -> list[HealthRow]:
    """Return one row for each rank with any sample."""
    records = list(records)
    by_rank: dict[int, list[RankRecord]] = {}
    for record in records:
        if record.health or record.host_load or record.gc_ms is not None:
            by_rank.setdefault(record.rank, []).append(record)
    devices = Counter(_device(own[-1]) for own in by_rank.values())
    rows = [_row(rank, own, devices[_device(own[-1])]) for rank, own in sorted(by_rank.items())]
    others = cpu_of_others(records)
    for row in rows:
        if row.cpus and row.host in others:
            row.others_cpu_pct = min(100.0 * others[row.host] / row.cpus, 100.0)
    return rows


def _device(record: RankRecord) -> tuple[str, str | None]:
    return record.host, record.device_uuid


def _row(rank: int, records: list[RankRecord], sharing: int) -> HealthRow:
    """Return the row of a rank. ``sharing``: number of ranks of the job on its device, including itself."""
    device = [s for r in records for s in r.health]
    host = [s for r in records for s in r.host_load]
    loads = [r.host_load for r in records]
    periods, throttled = _growth(loads, "quota_periods"), _growth(loads, "throttled_periods")
    return HealthRow(
        rank=rank,
        host=records[-1].host,
        device=records[-1].device,
        gc_ms_per_step=_pauses(records),
        samples=len(device),
        sm_mhz=_of(_median, device, "sm_mhz"),
        sm_max_mhz=_of(max, device, "sm_max_mhz"),
        memory_mhz=_of(_median, device, "memory_mhz"),
        power_w=_of(_median, device, "power_w"),
        power_limit_w=_of(_median, device, "power_limit_w"),
        temperature_c=_of(max, device, "temperature_c"),
        utilisation_pct=_of(_median, device, "utilisation_pct"),
        throttle=_shares(device),
        ecc_corrected=_whole(_of(max, device, "ecc_corrected")),
        ecc_uncorrected=_whole(_of(max, device, "ecc_uncorrected")),
        pcie_generation=_whole(_of(max, device, "pcie_generation")),
        pcie_generation_max=_whole(_of(max, device, "pcie_generation_max")),
        pcie_width=_whole(_of(max, device, "pcie_width")),
        pcie_width_max=_whole(_of(max, device, "pcie_width_max")),
        pcie_replays=_whole(_growth([r.health for r in records], "pcie_replays")),
        other_processes=_beyond(_whole(_of(max, device, "processes")), sharing),
        cpus=_of(min, host, "cpus"),
        load_1m=_of(max, host, "load_1m"),
        cpu_throttled_ms=_growth(loads, "throttled_ms"),
        cpu_throttled_pct=100.0 * (throttled or 0.0) / periods if periods else None,
        memory_available_bytes=_whole(_of(min, host, "memory_available_bytes")),
        pressure_cpu_pct=_of(max, host, "pressure_cpu_pct"),
        pressure_memory_pct=_of(max, host, "pressure_memory_pct"),
        pressure_io_pct=_of(max, host, "pressure_io_pct"),
    )


def _beyond(processes: int | None, sharing: int) -> int | None:
    return None if processes is None else max(processes - sharing, 0)


def _pauses(records: Sequence[RankRecord]) -> float | None:
    steps = [
        (r.gc_ms, r.last_step - r.first_step + 1)
        for r in records
        if r.gc_ms is not None and r.first_step is not None and r.last_step is not None
    ]
    total = sum(count for _, count in steps)
    return sum(ms for ms, _ in steps) / total if total > 0 else None


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def _known(samples: Sequence[T], name: str) -> list[float]:
    return [value for value in map(attrgetter(name), samples) if value is not None]


def _of(measure: Callable[[Iterable[float]], float], samples: Sequence[T], name: str) -> float | None:
    known = _known(samples, name)
    return float(measure(known)) if known else None


def _growth(windows: Sequence[Sequence[T]], name: str) -> float | None:
    """Return how much a counter grew from the first to the last sample of each window, summed.

    None if no window has two samples; a counter that was reset has not grown.
    """
    grown = [max(known[-1] - known[0], 0.0) for w in windows if len(known := _known(w, name)) > 1]
    return float(sum(grown)) if grown else None


def _shares(samples: Sequence[HealthSample]) -> dict[str, float]:
    """Return reason -> share of the samples with it, per cent, most frequent first."""
    count = Counter(reason for s in samples for reason in s.throttle)
    return {reason: 100.0 * number / len(samples) for reason, number in count.most_common()}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
