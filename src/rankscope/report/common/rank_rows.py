"""Ranks that a short table shows separately, and those that it combines into one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope.listing import some_ranks
from rankscope.records.report import ClusterReport
from rankscope.records.rows import RankIdle, RankSummary
from rankscope.report.common import breakdown, plain_text

__all__ = ["RankRow", "rank_rows"]


_SHORT = 12
"""Letters that a label has room for."""


@dataclass(frozen=True)
class RankRow:
    """A rank, or several that are shown as one."""

    label: str
    host: str = ""
    named: bool = False
    """Whether the verdict names it."""
    shares: RankSummary | None = None
    """None if there is nothing to show; ``note`` states why."""
    parts: tuple[breakdown.Segment, ...] = ()
    """The bar."""
    cost_ms: float | None = None
    """Per step; None if no cost is stated for this rank alone."""
    wait_ms: float | None = None
    """Exposed waiting for peers, per step; for several ranks the mean, never the sum."""
    note: str = ""


def rank_rows(report: ClusterReport, limit: int, *, apart: bool = False) -> list[RankRow]:
    """Return a row for each rank if there are few; else one for each that the verdict names, or one for all of these if
    they are many, and one for all others.

    Ranks without a usable trace have one row for each status, so that they do not displace recorded ranks.

    Args:
        report: whose ranks.
        limit: of rows for ranks with a trace.
        apart: each rank without a usable trace has a row of its own, in order of rank.
    """
    named = set(report.verdict.ranks)
    usable = sorted((rank for rank in report.ranks if rank.compute_pct is not None), key=lambda rank: rank.rank)
    broken = [rank for rank in report.ranks if rank.compute_pct is None]
    few = len(usable) <= limit
    chosen = [rank for rank in usable if rank.rank in named]
    single = usable if few else chosen if len(chosen) < limit else []
    shown = {id(rank) for rank in (*single, *chosen)}
    others = [rank for rank in usable if id(rank) not in shown]
    idle = {row.rank: row for row in report.idle}
    rows = [
        RankRow(
            label=str(rank.rank),
            host=plain_text.one_line(rank.host or "", 14),
            named=rank.rank in named,
            shares=rank,
            parts=tuple(breakdown.segments(rank, idle.get(rank.rank))),
            cost_ms=_cost(report, rank.rank),
            wait_ms=idle[rank.rank].waiting_ms if rank.rank in idle else None,
        )
        for rank in single
    ]
    if chosen and not single:
        listed = some_ranks([rank.rank for rank in chosen])
        label = listed if len(listed) <= _SHORT else f"{len(chosen):,} ranks"
        rows.append(_as_one(label, chosen, idle, named=True, cost_ms=report.verdict.cost_ms_per_step))
    if others:
        rows.append(_as_one(f"{len(others):,} {'others' if chosen else 'ranks'}", others, idle))
    if apart:
        return sorted(rows + [row for rank in broken for row in _without_trace([rank])], key=lambda r: _place(r.label))
    return rows + _without_trace(broken)


def _as_one(
    label: str,
    ranks: Sequence[RankSummary],
    idle: Mapping[int, RankIdle],
    *,
    named: bool = False,
    cost_ms: float | None = None,
) -> RankRow:
    """Return several ranks as one row, by their means."""
    mean, gaps = breakdown.mean(ranks, [idle[rank.rank] for rank in ranks if rank.rank in idle])
    wait_ms = None if gaps is None else gaps.waiting_ms
    parts = tuple(breakdown.segments(mean, gaps))
    return RankRow(label=label, named=named, shares=mean, parts=parts, cost_ms=cost_ms, wait_ms=wait_ms)


def _place(label: str) -> int:
    return int(label) if label.isdigit() else 1 << 40


def _cost(report: ClusterReport, rank: int) -> float | None:
    if report.verdict.ranks == [rank] and report.verdict.cost_ms_per_step is not None:
        return report.verdict.cost_ms_per_step
    costs = [finding.cost_ms_per_step for finding in report.findings if finding.ranks == [rank]]
    least = (report.verdict.step_ms or 0.0) / 100  # what costs less is said to cost nothing
    return max((cost for cost in costs if cost is not None and cost >= least), default=None)


def _without_trace(broken: Iterable[RankSummary]) -> list[RankRow]:
    by_status: dict[str, list[RankSummary]] = {}
    for rank in broken:
        by_status.setdefault(rank.status, []).append(rank)
    rows = []
    for status, ranks in by_status.items():
        label = str(ranks[0].rank) if len(ranks) == 1 else f"{len(ranks):,} ranks"
        reasons = sorted({plain_text.one_line(rank.reason, 80) for rank in ranks if rank.reason})
        rows.append(RankRow(label=label, note=": ".join([plain_text.one_line(status, 20), *reasons[:1]])))
    return rows
