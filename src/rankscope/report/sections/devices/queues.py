"""How far each host runs ahead of its device."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, number, numbers
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "queues"]

METRICS: dict[str, Metric] = {
    "starved_pct": Metric(
        "Launch queue",
        "Idle for the host",
        "% of window",
        "Time in which nothing launched is outstanding and nothing runs: the device waits for its host.",
        "Waiting inside a collective is not in it, since the collective runs.",
    ),
    "median_outstanding": Metric(
        "Launch queue",
        "Outstanding",
        "launches, median",
        "What was launched and has not begun, on all streams together, weighted by time.",
        "Copies and communication count. Near zero: the device starts what the host launches at once and is fed hand "
        "to mouth; hundreds: the host runs ahead.",
        "HTA's queue length is per stream and not weighted by time.",
    ),
    "max_outstanding": Metric("Launch queue", "Most", "launches", "The most that was outstanding at any time."),
    "median_delay_us": Metric(
        "Launch queue",
        "Launch delay",
        "µs, median",
        "From the start of a launch to the start of its work on the device.",
    ),
}


def queues(report: ClusterReport) -> Table:
    """One row a rank with a device: how far its host runs ahead."""
    rows = sorted(report.queues, key=lambda row: row.rank)
    heads = [Column("Rank", numeric=True)]
    columns = [[number(r.rank) for r in rows]]
    for key, values, decimals in (
        ("starved_pct", [r.starved_pct for r in rows], 1),
        ("median_outstanding", [r.median_outstanding for r in rows], 1),
        ("max_outstanding", [float(r.max_outstanding) for r in rows], 0),
        ("median_delay_us", [r.median_delay_us for r in rows], None),
    ):
        heads.append(metric(METRICS[key]))
        columns.append(numbers(values, decimals))
    return Table("queues", heads, [Row(cells) for cells in assemble(columns)])


def _build(report: ClusterReport) -> Variables | None:
    lead = (
        "How far each host runs ahead of its device. A queue that runs dry means that the device waits for its host "
        "(host bound); a long one, that the host waits for its device."
    )
    return tables(lead, ("Launch queues", queues(report))) if report.queues else None


SECTION = Section("queues", "Host", "Host and launch queue", _build, METRICS, optional=True)
