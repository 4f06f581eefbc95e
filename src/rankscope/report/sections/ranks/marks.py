"""What the script marked in the run."""

from __future__ import annotations

from rankscope.records.from_script import RunMark
from rankscope.records.report import ClusterReport
from rankscope.report.common.cells import Column, Row, Table, assemble, number, text
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["SECTION", "marks", "values_of"]

MOST = 200


def values_of(mark: RunMark) -> str:
    """Return the numbers of a mark: ``gib 12, files 3``."""
    return ", ".join(f"{name} {value:g}" for name, value in mark.values.items())


def marks(report: ClusterReport) -> Table:
    """One row a mark, in order of steps."""
    rows = report.marks[:MOST]
    several = any(row.attempt for row in rows)
    heads = [Column("Step", numeric=True), Column("Mark"), Column("Values"), Column("Ranks", numeric=True)]
    heads.append(Column("First rank", numeric=True))
    columns = [[number(r.step) for r in rows], [text(r.name) for r in rows], [text(values_of(r), 80) for r in rows]]
    columns += [[number(r.ranks) for r in rows], [number(r.rank) for r in rows]]
    if several:
        heads.insert(0, Column("Attempt", numeric=True))
        columns.insert(0, [number(r.attempt) for r in rows])
    more = len(report.marks) - len(rows)
    return Table("marks", heads, [Row(cells) for cells in assemble(columns)], f"{more:,} more" if more else "")


def _build(report: ClusterReport) -> Variables | None:
    lead = "What the script marked with rankscope.mark, in the whole run, recorded or not."
    return tables(lead, ("Marks", marks(report))) if report.marks else None


SECTION = Section("marks", "Marks", "Marks of the script", _build)
"""It defines no numbers: the values are the script's."""
