"""One bar a rank of the recorded window, with what a screen reader says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankscope.records.report import ClusterReport
from rankscope.report.common import breakdown, plain_text, summary
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, number, numbers
from rankscope.report.common.metrics import Metric
from rankscope.report.sections import ranks
from rankscope.report.sections.base import Section, Variables

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


class Bar(NamedTuple):
    """The bar of one rank. ``empty`` says why there is none."""

    rank: int
    label: str
    named: bool
    segments: list[breakdown.Segment]
    spoken: str
    empty: str


def bars(report: ClusterReport) -> list[Bar]:
    """Bars in the order of :func:`summary.in_order`."""
    idle = {row.rank: row for row in report.idle}
    named = set(report.verdict.ranks)
    found = []
    for rank in summary.in_order(report):
        parts = breakdown.segments(rank, idle.get(rank.rank))
        spoken = ", ".join(f"{part.label} {words.pct(part.pct)}" for part in parts)
        empty = f"{rank.status}: {plain_text.one_line(rank.reason, 160)}" if rank.reason else rank.status
        label = words.ms(rank.step_ms.get("median"))
        found.append(Bar(rank.rank, label, rank.rank in named, parts, spoken, "" if parts else empty))
    return found


def legend(shown: Sequence[Bar]) -> list[tuple[str, str, str]]:
    """Segment, label and definition of what occurs."""
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


def _build(report: ClusterReport) -> Variables:
    shown = bars(report)
    return {
        "bars": shown,
        "legend": legend(shown),
        "idle": idle(report),
        "device": "device" if summary.has_accelerator(report) else "main thread",
        "many": len(shown) > summary.FEW_RANKS,
    }


SECTION = Section("time", "Time", "Where the time goes", _build, METRICS, "time.html.j2")
