"""Collectives by process group, compared with the peak bandwidth of the link between the devices."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.device_links import UNKNOWN, link_between
from rankscope.listing import some_ranks
from rankscope.records.report import ClusterReport
from rankscope.records.rows import GroupRow, ModuleRow
from rankscope.report.common import summary
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "collective_table", "groups", "members", "texts"]

METRICS: dict[str, Metric] = {
    "calls_per_step": Metric("Process groups", "Calls", "per step", "Collectives of this kind in this group and step."),
    "megabytes_per_call": Metric(
        "Process groups", "Size", "MB per call", "Bytes of the call's message, averaged. 1 MB is 10⁶ bytes."
    ),
    "group.wait_ms_per_step": Metric(
        "Process groups",
        "Wait",
        "ms per step",
        "From a rank's own arrival to the last arrival, averaged over the group's ranks.",
    ),
    "group.transfer_ms_per_step": Metric(
        "Process groups", "Transfer", "ms per step", "From the last arrival to the collective's end."
    ),
    "group.exposed_ms_per_step": Metric(
        "Process groups",
        "Exposed",
        "ms per step",
        "The part of wait and transfer that no compute of the same rank hides.",
        "Collectives at once share their time: all together they are the rank's exposed communication.",
    ),
    "bus_gb_s": Metric(
        "Process groups",
        "Bus bandwidth",
        "GB/s",
        "Bytes over the transfer time alone, times the collective's bus factor as in NCCL's tests. 1 GB is 10⁹ bytes.",
        "Factor 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all. Waiting is out, "
        "so it can be set against the link's speed.",
        "HTA's memory bandwidth is that of copies, not of collectives.",
    ),
    "link_gb_s": Metric(
        "Process groups",
        "Link",
        "GB/s",
        "What the link between the group's devices could give in one direction, by their data sheet; not measured.",
        "Known only where all ranks of the group are on one host with the same, known device; else unknown. Boards "
        "without NVSwitch give two devices only a part of it, and an all-reduce inside NVSwitch (NVLink SHARP) can "
        "exceed it.",
        accelerator=True,
    ),
    "link_share_pct": Metric(
        "Process groups",
        "Of the link",
        "%",
        "Bus bandwidth over what the link could give.",
        "Small calls are bound by latency and stay far below.",
        accelerator=True,
    ),
}


def groups(report: ClusterReport) -> Table:
    """One row a process group and kind of collective."""
    rows = report.groups
    heads = [Column("Group"), Column("Ranks"), Column("Collective"), Column("Type")]
    columns = [texts([r.group for r in rows], 40), members(rows), texts([r.collective for r in rows], 40)]
    columns.append(texts([r.dtype for r in rows], 20))
    return collective_table("groups", report, heads, columns, rows)


def texts(values: Sequence[object], limit: int) -> list[Cell]:
    """Return cells of names, each shortened to ``limit`` characters."""
    return [text(value, limit) for value in values]


def members(rows: Sequence[GroupRow | ModuleRow]) -> list[Cell]:
    """Cells of the ranks of each group."""
    return [text(some_ranks(row.ranks, 4), 48) for row in rows]


def collective_table(
    name: str,
    report: ClusterReport,
    heads: list[Column],
    columns: list[list[Cell]],
    rows: Sequence[GroupRow | ModuleRow],
) -> Table:
    """Append the columns that groups and modules share: calls, times, bandwidth, and the link if there are devices."""
    for key, values in (
        ("calls_per_step", [r.calls_per_step for r in rows]),
        ("megabytes_per_call", [r.megabytes_per_call for r in rows]),
        ("group.wait_ms_per_step", [r.wait_ms_per_step for r in rows]),
        ("group.transfer_ms_per_step", [r.transfer_ms_per_step for r in rows]),
        ("group.exposed_ms_per_step", [r.exposed_ms_per_step for r in rows]),
        ("bus_gb_s", [r.bus_gb_s for r in rows]),
    ):
        heads.append(metric(METRICS[key]))
        columns.append(numbers(values, 1 if key == "calls_per_step" else None))
    if summary.has_accelerator(report):
        by_rank = {rank.rank: rank for rank in report.ranks}
        links = [link_between(row.ranks, by_rank) for row in rows]
        heads.append(metric(METRICS["link_gb_s"]))
        columns.append(
            [
                Cell(UNKNOWN, "") if a is None else Cell(f"{a.gb_s:,.0f}", a.gb_s, f"{a.name}, one direction")
                for a in links
            ]
        )
        shares = [
            None if link is None or row.bus_gb_s is None else 100 * row.bus_gb_s / link.gb_s
            for row, link in zip(rows, links, strict=True)
        ]
        if any(share is not None for share in shares):
            heads.append(metric(METRICS["link_share_pct"]))
            columns.append(numbers(shares, 0))
    return Table(name, heads, [Row(cells) for cells in assemble(columns)])


def _build(report: ClusterReport) -> Variables | None:
    lead = (
        "Wait is until the last rank arrives, transfer is after. Waiting is not cost: what it costs is in the verdict "
        "and the findings."
    )
    return tables(lead, ("Process groups", groups(report))) if report.groups else None


SECTION = Section("groups", "Groups", "Process groups", _build, METRICS)
