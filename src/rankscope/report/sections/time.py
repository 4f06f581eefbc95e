"""One bar a rank of the recorded window, with what a screen reader says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankscope.records.report import ClusterReport
from rankscope.report.common import breakdown
from rankscope.report.common import wording as words
from rankscope.report.common.metrics import hover

__all__ = ["Bar", "bars", "legend"]


class Bar(NamedTuple):
    """The bar of one rank. ``empty`` says why there is none."""

    rank: int
    label: str
    named: bool
    segments: list[breakdown.Segment]
    spoken: str
    empty: str


def bars(report: ClusterReport) -> list[Bar]:
    """Bars in the order of :func:`words.in_order`."""
    idle = {row.rank: row for row in report.idle}
    named = set(report.verdict.ranks)
    found = []
    for rank in words.in_order(report):
        parts = breakdown.segments(rank, idle.get(rank.rank))
        spoken = ", ".join(f"{part.label} {words.pct(part.pct)}" for part in parts)
        empty = f"{rank.status}: {words.one_line(rank.reason, 160)}" if rank.reason else rank.status
        label = words.ms(rank.step_ms.get("median"))
        found.append(Bar(rank.rank, label, rank.rank in named, parts, spoken, "" if parts else empty))
    return found


def legend(shown: Sequence[Bar]) -> list[tuple[str, str, str]]:
    """Segment, label and definition of what occurs."""
    used = {segment.key for bar in shown for segment in bar.segments}
    return [(key, label, hover(metric)) for key, (label, metric) in breakdown.LEGEND.items() if key in used]
