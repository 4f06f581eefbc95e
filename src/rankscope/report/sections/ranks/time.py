"""One bar per rank of the recorded window, with a text for screen readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankscope.records.report import ClusterReport
from rankscope.report.common import breakdown, summary
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, number, numbers
from rankscope.report.common.metrics import Metric
from rankscope.report.common.rank_rows import rank_rows
from rankscope.report.common.section import Section, Variables
from rankscope.report.sections.ranks import ranks

__all__ = ["METRICS", "SECTION", "Bar", "bars", "idle", "legend"]

METRICS: dict[str, Metric] = {
    "waiting_ms": Metric(
        "Where the rest of the time goes",
        "Waiting for peers",
        "ms per step",
        "Exposed communication before the last rank has arrived at the collective.",
        "Only what no compute hides; the ranks table's waits include hidden waiting.",
    ),
    "transfer_ms": Metric(
        "Where the rest of the time goes",
        "Transfer",
        "ms per step",
        "Exposed communication after the last rank has arrived: data on the wire.",
    ),
    "input_ms": Metric(
        "Where the rest of the time goes",
        "Idle: input",
        "ms per step",
        "Idle while the host sits in the data loader.",
        "",
        "HTA's idle breakdown knows host wait, kernel wait and other; it does not know the data loader.",
    ),
    "host_ms": Metric(
        "Where the rest of the time goes",
        "Idle: host",
        "ms per step",
        "Idle for any other reason on the host: Python, launches, synchronisation, pauses.",
    ),
    "copy_ms": Metric(
        "Where the rest of the time goes",
        "Copies",
        "ms per step",
        "Copies and memsets that neither compute nor communication hides.",
    ),
}

MOST_BARS = 8
"""In a large job: ranks that the verdict names, and the others as one. Each rank has its row in the table."""


class Bar(NamedTuple):
    """The bar of one rank, or of several as one. ``empty`` states why there is none."""

    rank: int | None
    """None: several ranks."""
    who: str
    label: str
    named: bool
    segments: list[breakdown.Segment]
    spoken: str
    empty: str


def bars(report: ClusterReport) -> list[Bar]:
    """Return one bar per rank if there are few; else those that the verdict names, all others as one, and missing
    ones."""
    steps = {rank.rank: rank.step_ms.get("median") for rank in report.ranks}
    few = len(report.ranks) <= summary.FEW_RANKS
    rows = rank_rows(report, summary.FEW_RANKS if few else MOST_BARS, apart=few)
    found = []
    for row in rows:
        alone = int(row.label) if row.label.isdigit() else None
        spoken = ", ".join(f"{part.label} {words.pct(part.pct)}" for part in row.parts)
        length = words.ms(steps.get(alone)) if alone is not None else ""
        who = f"rank {row.label}" if alone is not None else row.label
        found.append(Bar(alone, who, length, row.named, list(row.parts), spoken, "" if row.parts else row.note))
    return found


def legend(shown: Sequence[Bar]) -> list[tuple[str, str, str]]:
    """Return segment, label and definition of the segments that occur."""
    used = {segment.key for bar in shown for segment in bar.segments}
    defined = {**ranks.METRICS, **METRICS}
    return [(key, label, defined[name].hover) for key, (label, name) in breakdown.LEGEND.items() if key in used]


def idle(report: ClusterReport) -> Table:
    """One row a rank: the times in which it computes nothing, by kind."""
    rows = sorted(report.idle, key=lambda row: row.rank)
    names = ("waiting_ms", "transfer_ms", "input_ms", "host_ms", "copy_ms")
    columns = [[number(r.rank) for r in rows], *(numbers([getattr(r, name) for r in rows]) for name in names)]
    heads = [Column("Rank", numeric=True), *(metric(METRICS[name]) for name in names)]
    return Table("idle", heads, [Row(cells) for cells in assemble(columns)])


def _build(report: ClusterReport) -> Variables | None:
    if not summary.is_recorded(report):
        return None
    shown = bars(report)
    return {
        "bars": shown,
        "legend": legend(shown),
        "idle": idle(report),
        "device": "device" if summary.has_accelerator(report) else "main thread",
        "many": len(report.ranks) > summary.FEW_RANKS,
    }


SECTION = Section("time", "Time", "Where the time goes", _build, METRICS, "time.html.j2")
