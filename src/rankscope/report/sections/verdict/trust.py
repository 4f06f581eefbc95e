"""The tables at the end of the page: clocks, files, HTA's own numbers."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.report.common import hta, plain_text, summary
from rankscope.report.common.cells import Cell, Column, Row, Table, metric, number, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables

__all__ = ["METRICS", "SECTION", "clock_offsets", "sources"]

METRICS: dict[str, Metric] = {
    "error_us": Metric(
        "Clocks and matching",
        "Clock error",
        "µs",
        "95 % of the ends of matched collectives agree within this after alignment.",
        "Differences between ranks below it are noise.",
        "HTA trusts raw clocks.",
    ),
    "offset_us": Metric(
        "Clocks and matching", "Clock offset", "µs", "Added to the rank's own clock to reach the common one."
    ),
    "count": Metric(
        "Clocks and matching",
        "Collectives",
        "count",
        "Collectives that the ranks recorded, one per call and rank group.",
    ),
    "matched_pct": Metric(
        "Clocks and matching",
        "Matched",
        "% of collectives",
        "Share of the collectives recognised as the same call on all ranks of their group.",
        "Waiting, transfer and lateness use matched collectives only.",
    ),
    "recording_overhead_pct": Metric(
        "Recording",
        "Recording overhead",
        "%",
        "The median step while recorded against the usual one before the window.",
        "Not given where the host ran ahead of its device and no rhythm tells how long a step took.",
    ),
    "residue_pct": Metric(
        "Recording",
        "Residue",
        "%",
        "The usual step after the last window against that before it.",
    ),
    "longest_stall_ms": Metric(
        "Recording",
        "Longest stall",
        "ms",
        "The longest time that opening or closing a window held up a training thread.",
    ),
}


def clock_offsets(report: ClusterReport) -> Table:
    """Return the clock offset of each rank."""
    items = sorted(report.clock.offsets_us.items(), key=lambda item: (len(item[0]), item[0]))
    cells = numbers([value for _, value in items])
    rows = [
        Row([Cell(plain_text.one_line(rank, 20), float(rank) if rank.isdecimal() and rank.isascii() else rank), cell])
        for (rank, _), cell in zip(items, cells, strict=True)
    ]
    return Table("clock-offsets", [Column("Rank", numeric=True), metric(METRICS["offset_us"])], rows)


def sources(report: ClusterReport) -> Table:
    """Return the files that were not used unchanged: ignored, unusable, or repaired."""
    rows = [
        Row(
            [
                text(source.path, 90),
                Cell("repaired" if source.status == "used" else source.status, source.status),
                number(source.rank),
                text("; ".join([source.reason or "", *_repairs(source.repairs)]).strip("; ") or None, 160),
            ]
        )
        for source in report.sources
        if source.status != "used" or source.repairs or source.reason
    ]
    heads = [Column("File"), Column("What became of it"), Column("Rank", numeric=True), Column("Why")]
    used = sum(source.status == "used" for source in report.sources)
    return Table("sources", heads, rows, f"{used:,} of {len(report.sources):,} files were used.")


def _repairs(repairs: dict[str, int]) -> list[str]:
    return [f"{count:,} x {kind.replace('_', ' ')}" for kind, count in repairs.items()]


def _build(report: ClusterReport) -> Variables:
    chance = report.verdict.p_value
    return {
        "offsets": clock_offsets(report),
        "sources": sources(report),
        "hta": hta.analyses(report),
        "recorded": summary.is_recorded(report),
        "chance": "" if chance is None else f"{chance:.2g}",
    }


SECTION = Section("trust", "Trust", "How far to trust this", _build, METRICS, "trust.html.j2")
