"""One row per rank as Parquet, for jobs with too many ranks to read a table of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from rankscope.records.report import ClusterReport
from rankscope.records.rows import LaunchQueue, RankIdle, RankSummary
from rankscope.rundir.files import temporary_beside

__all__ = ["MANY", "columns_of", "write_ranks"]

MANY = 128
"""Ranks above which the file is written."""
_TEXTS = ("host", "device", "status", "reason")
_COUNTS = ("rank", "steps", "max_outstanding")


def write_ranks(report: ClusterReport, target: Path) -> None:
    """Write the ranks of a report, in their order.

    Raises:
        OSError: the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {**dict.fromkeys(_TEXTS, pa.string()), **dict.fromkeys(_COUNTS, pa.int64())}
    columns = {name: pa.array(values, types.get(name, pa.float64())) for name, values in columns_of(report).items()}
    with temporary_beside(target) as temporary:
        pq.write_table(pa.table(columns), str(temporary), compression="zstd")
        temporary.replace(target)


def columns_of(report: ClusterReport) -> dict[str, list[Any]]:
    """Return the values of each rank by name; None if the report has none."""
    ranks = report.ranks
    found = {name: [getattr(row, name) for row in ranks] for name in _names(RankSummary) if name != "step_ms"}
    for name in ("median", "p95"):
        found[f"step_{name}_ms"] = [row.step_ms.get(name) for row in ranks]
    for rows, kind in ((report.idle, RankIdle), (report.queues, LaunchQueue)):
        known = {row.rank: row for row in rows}
        for name in _names(kind):
            if name != "rank":
                found[name] = [getattr(known.get(row.rank), name, None) for row in ranks]
    return found


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind) if field.name != "files"]
