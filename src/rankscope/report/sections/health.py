"""Tables of health: devices and processes by rank, hosts by name. A column that nobody reported is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.records.report import ClusterReport
from rankscope.records.rows import HealthRow
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, number, numbers, text

__all__ = ["devices", "hosts"]

_CLOCK: tuple[tuple[str, int], ...] = (("sm_mhz", 0), ("sm_max_mhz", 0))
_DEVICE: tuple[tuple[str, int], ...] = (
    ("temperature_c", 0),
    ("power_w", 0),
    ("power_limit_w", 0),
    ("utilisation_pct", 0),
    ("memory_mhz", 0),
    ("pcie_generation", 0),
    ("pcie_width", 0),
    ("pcie_replays", 0),
    ("ecc_corrected", 0),
    ("ecc_uncorrected", 0),
    ("gc_ms_per_step", 2),
)
"""Field and decimals, in the order of the columns."""
_ERRORS = frozenset({"pcie_replays", "ecc_corrected", "ecc_uncorrected"})
"""No column where all is well."""
_HOST: tuple[tuple[str, int], ...] = (
    ("cpus", 1),
    ("load_1m", 1),
    ("cpu_throttled_pct", 1),
    ("cpu_throttled_ms", 0),
    ("memory_available_bytes", 1),
    ("pressure_cpu_pct", 1),
    ("pressure_memory_pct", 1),
    ("pressure_io_pct", 1),
)


def devices(report: ClusterReport) -> Table:
    """One row a rank of which more is known than its host."""
    rows = sorted((r for r in report.health if r.samples or r.gc_ms_per_step is not None), key=lambda r: r.rank)
    heads = [Column("Rank", numeric=True)]
    columns = [[number(r.rank) for r in rows]]
    _measured(_CLOCK, rows, heads, columns)
    if any(r.throttle for r in rows):
        heads.append(metric("throttle")._replace(numeric=False))
        columns.append([text(_reasons(r), 60) for r in rows])
    _measured(_DEVICE, rows, heads, columns)
    named = set(report.verdict.ranks)
    marks = ["named" if r.rank in named else "" for r in rows]
    return Table("health", heads, [Row(cells, "", mark) for cells, mark in zip(assemble(columns), marks, strict=True)])


def hosts(report: ClusterReport) -> Table:
    """One row a host: its ranks saw the same, up to when each was sampled; the worst of it is shown."""
    by_host: dict[str, list[HealthRow]] = {}
    for row in report.health:
        by_host.setdefault(row.host or words.DASH, []).append(row)
    rows = [_worst(members) for _, members in sorted(by_host.items())]
    ranks = [words.ranks([r.rank for r in members]) for _, members in sorted(by_host.items())]
    heads = [Column("Host"), Column("Ranks")]
    columns = [[text(r.host, 40) for r in rows], [text(found, 28) for found in ranks]]
    _measured(_HOST, rows, heads, columns)
    if len(columns) == 2:
        return Table("hosts", heads, [])
    return Table("hosts", heads, [Row(cells) for cells in assemble(columns)])


def _measured(
    fields: Sequence[tuple[str, int]], rows: Sequence[HealthRow], heads: list[Column], columns: list[list[Cell]]
) -> None:
    for key, decimals in fields:
        values = [getattr(r, key) for r in rows]
        if any(values) if key in _ERRORS else any(value is not None for value in values):
            scale = 2**-30 if key.endswith("_bytes") else 1.0
            heads.append(metric(key))
            columns.append(numbers([None if v is None else v * scale for v in values], decimals))


def _worst(rows: Sequence[HealthRow]) -> HealthRow:
    found = HealthRow(rank=rows[0].rank, host=rows[0].host)
    for key, _ in _HOST:
        values = [value for row in rows if (value := getattr(row, key)) is not None]
        choose: Callable[..., float] = min if key in {"cpus", "memory_available_bytes"} else max
        setattr(found, key, choose(values) if values else None)
    return found


def _reasons(row: HealthRow) -> str | None:
    return ", ".join(f"{reason} {words.pct(share, 0)}" for reason, share in row.throttle.items()) or None
