"""The stacked bar of one rank: shares of its recorded window that sum to 100."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from rankscope.records.rows import RankIdle, RankSummary
from rankscope.report.common.rounding import SHARES

__all__ = ["LEGEND", "Segment", "mean", "segments"]

LEGEND: dict[str, tuple[str, str]] = {
    "compute": ("Compute", "compute_pct"),
    "fused": ("Compute and communication in one kernel", "fused_pct"),
    "comm": ("Waiting and transfer", "exposed_comm_pct"),
    "waiting": ("Waiting for peers", "waiting_ms"),
    "transfer": ("Transfer", "transfer_ms"),
    "copy": ("Copies", "memcpy_pct"),
    "idle": ("Idle", "idle_pct"),
    "input": ("Idle: input", "input_ms"),
    "host": ("Idle: host", "host_ms"),
}
"""Segment -> label and the metric that defines it, in the order of the bar."""


class Segment(NamedTuple):
    """One part of the bar. ``start`` and ``pct`` in percent of the bar."""

    key: str
    label: str
    start: float
    pct: float
    ms: float | None
    """ms per step, if measured."""


def segments(rank: RankSummary, idle: RankIdle | None) -> list[Segment]:
    """Return the bar of a rank, empty for a rank without a usable trace.

    The shares come from the summary, so the bar and the table agree; the idle record only says how to split
    exposed communication and idle.
    """
    parts: list[tuple[str, float, float | None]] = [
        ("compute", rank.compute_pct or 0.0, None),
        ("fused", rank.fused_pct or 0.0, None),
    ]
    if idle is None:
        parts += [("comm", rank.exposed_comm_pct or 0.0, None), ("copy", rank.memcpy_pct or 0.0, None)]
        parts += [("idle", rank.idle_pct or 0.0, None)]
    else:
        parts += _split("comm", rank.exposed_comm_pct, ("waiting", idle.waiting_ms), ("transfer", idle.transfer_ms))
        parts += [("copy", rank.memcpy_pct or 0.0, idle.copy_ms)]
        parts += _split("idle", rank.idle_pct, ("input", idle.input_ms), ("host", idle.host_ms))
    bar: list[Segment] = []
    start = 0.0
    for key, share, cost in parts:
        # A bar stays within its frame, whatever the numbers are.
        width = min(max(share, 0.0), 100.0 - start)
        if width > 0:
            bar.append(Segment(key, LEGEND[key][0], round(start, 3), round(width, 3), cost))
            start += width
    return bar


def mean(ranks: Sequence[RankSummary], idle: Sequence[RankIdle]) -> tuple[RankSummary, RankIdle | None]:
    """Combine several ranks into one, by the mean of each share and of each kind of idle time.

    The shares still sum to 100.

    Args:
        ranks: one or more, each with a usable trace.
        idle: of those for which it is known; None is returned if it is known for none.
    """
    shares: dict[str, Any] = {
        name: sum(getattr(rank, name) or 0.0 for rank in ranks) / len(ranks) for name in (*SHARES, "fused_pct")
    }
    if not idle:
        return RankSummary(rank=ranks[0].rank, **shares), None
    names = [item.name for item in dataclasses.fields(RankIdle) if item.name != "rank"]
    times: dict[str, Any] = {name: sum(getattr(row, name) for row in idle) / len(idle) for name in names}
    return RankSummary(rank=ranks[0].rank, **shares), RankIdle(rank=ranks[0].rank, **times)


def _split(
    whole: str, share: float | None, first: tuple[str, float | None], second: tuple[str, float | None]
) -> list[tuple[str, float, float | None]]:
    share = share or 0.0
    a, b = max(first[1] or 0.0, 0.0), max(second[1] or 0.0, 0.0)
    if a + b <= 0:
        return [(whole, share, None)]
    left = share * (a / (a + b))
    return [(first[0], left, first[1]), (second[0], share - left, second[1])]
