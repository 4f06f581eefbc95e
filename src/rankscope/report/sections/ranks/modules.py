"""Collectives by what they belong to: an FSDP module or a DDP bucket."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.report.common.cells import Column, Table
from rankscope.report.common.section import Section, Variables, tables
from rankscope.report.sections.ranks.groups import collective_table, members, texts

__all__ = ["SECTION", "modules"]


def modules(report: ClusterReport) -> Table:
    """One row an FSDP module or DDP bucket and kind of collective."""
    rows = report.modules
    heads = [Column("Module or bucket"), Column("Group"), Column("Ranks"), Column("Collective")]
    columns = [texts([r.module for r in rows], 60), texts([r.group for r in rows], 40), members(rows)]
    columns.append(texts([r.collective for r in rows], 40))
    return collective_table("modules", report, heads, columns, rows)


def _build(report: ClusterReport) -> Variables | None:
    lead = "The same by FSDP module or DDP bucket, most exposed first: which part of the model the devices wait for."
    return tables(lead, ("Modules and buckets", modules(report))) if report.modules else None


SECTION = Section("modules", "Modules", "Modules and buckets", _build)
