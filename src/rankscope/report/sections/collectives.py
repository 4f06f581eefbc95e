"""Tables of collectives: by process group, by FSDP module or DDP bucket, against what the link could give."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.records.report import ClusterReport
from rankscope.records.rows import GroupRow, ModuleRow
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, numbers, text
from rankscope.report.common.link_bandwidth import UNKNOWN, link_between

__all__ = ["groups", "modules"]


def groups(report: ClusterReport) -> Table:
    """One row a process group and kind of collective."""
    rows = report.groups
    heads = [Column("Group"), Column("Ranks"), Column("Collective"), Column("Type")]
    columns = [_texts([r.group for r in rows], 40), _members(rows), _texts([r.collective for r in rows], 40)]
    columns.append(_texts([r.dtype for r in rows], 20))
    return _calls("groups", report, heads, columns, rows)


def modules(report: ClusterReport) -> Table:
    """One row an FSDP module or DDP bucket and kind of collective."""
    rows = report.modules
    heads = [Column("Module or bucket"), Column("Group"), Column("Ranks"), Column("Collective")]
    columns = [_texts([r.module for r in rows], 60), _texts([r.group for r in rows], 40), _members(rows)]
    columns.append(_texts([r.collective for r in rows], 40))
    return _calls("modules", report, heads, columns, rows)


def _texts(values: Sequence[object], limit: int) -> list[Cell]:
    return [text(value, limit) for value in values]


def _members(rows: Sequence[GroupRow | ModuleRow]) -> list[Cell]:
    return [text(words.ranks(row.ranks), 28) for row in rows]


def _calls(
    name: str,
    report: ClusterReport,
    heads: list[Column],
    columns: list[list[Cell]],
    rows: Sequence[GroupRow | ModuleRow],
) -> Table:
    """Append what groups and modules have in common: calls, times, bandwidth, and the link where there are devices."""
    for key, values in (
        ("calls_per_step", [r.calls_per_step for r in rows]),
        ("megabytes_per_call", [r.megabytes_per_call for r in rows]),
        ("group.wait_ms_per_step", [r.wait_ms_per_step for r in rows]),
        ("group.transfer_ms_per_step", [r.transfer_ms_per_step for r in rows]),
        ("group.exposed_ms_per_step", [r.exposed_ms_per_step for r in rows]),
        ("bus_gb_s", [r.bus_gb_s for r in rows]),
    ):
        heads.append(metric(key))
        columns.append(numbers(values, 1 if key == "calls_per_step" else None))
    if words.has_accelerator(report):
        by_rank = {rank.rank: rank for rank in report.ranks}
        links = [link_between(row.ranks, by_rank) for row in rows]
        heads.append(metric("link_gb_s"))
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
            heads.append(metric("link_share_pct"))
            columns.append(numbers(shares, 0))
    return Table(name, heads, [Row(cells) for cells in assemble(columns)])
