"""Parts of the step that the script named."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, number, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "regions"]

_INSIDE = "Regions inside of it are in; of a region within itself the outer one counts."
METRICS: dict[str, Metric] = {
    "region.calls_per_step": Metric("Regions", "Calls", "per step", "How often a rank enters it, mean over its ranks."),
    "region.host_ms": Metric(
        "Regions", "Host", "ms per step", "Time between its begin and its end, median over its ranks.", _INSIDE
    ),
    "region.host_most_ms": Metric(
        "Regions", "Longest host", "ms per step", "The same on the rank where it takes longest."
    ),
    "region.device_ms": Metric(
        "Regions",
        "Device",
        "ms per step",
        "Time in which the device runs what was launched inside, median over its ranks.",
        "The backward of what is computed inside is launched elsewhere, and is not in it.",
        accelerator=True,
    ),
    "region.device_most_ms": Metric(
        "Regions", "Longest device", "ms per step", "The same on the rank with most of it.", accelerator=True
    ),
}


def regions(report: ClusterReport) -> Table:
    """One row a region, the longest on the host first."""
    rows = report.regions
    heads = [Column("Region"), Column("Ranks", numeric=True)]
    columns = [[text(r.region) for r in rows], [number(r.ranks) for r in rows]]
    for key, values in (
        ("calls_per_step", [r.calls_per_step for r in rows]),
        ("host_ms", [r.host_ms for r in rows]),
        ("host_most_ms", [r.host_ms_by_rank.get(str(r.host_rank)) for r in rows]),
    ):
        heads.append(metric(METRICS[f"region.{key}"]))
        columns.append(numbers(values))
    heads.append(Column("of rank", numeric=True))
    columns.append([number(r.host_rank) for r in rows])
    if any(row.device_ms is not None for row in rows):
        heads += [metric(METRICS["region.device_ms"]), metric(METRICS["region.device_most_ms"])]
        columns.append(numbers([r.device_ms for r in rows]))
        columns.append(numbers([r.device_ms_by_rank.get(str(r.device_rank)) for r in rows]))
        heads.append(Column("of rank", numeric=True))
        columns.append([number(r.device_rank) for r in rows])
    return Table("regions", heads, [Row(cells) for cells in assemble(columns)])


def _build(report: ClusterReport) -> Variables | None:
    lead = "Parts of the step that the script named, with rankscope.region or record_function, the longest first."
    return tables(lead, ("Regions", regions(report))) if report.regions else None


SECTION = Section("regions", "Regions", "Regions of the script", _build, METRICS, optional=True)
