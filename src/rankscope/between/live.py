"""State of a running job: a reader of what the nodes place, and one line for the launcher, ``status`` and ``top``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from rankscope.causes.wording import amount
from rankscope.errors import ForeignFileError
from rankscope.limits import MAX_NODES
from rankscope.listing import named_ranks
from rankscope.records.running.live import NodeLive, RankLive
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record

__all__ = ["age_s", "in_a_line", "live_ranks", "rank_rows", "read_live"]

TREND_PCT = 5.0
"""Change of the step time, in per cent since the 200 steps before, from which on it is shown."""
INPUT_PCT = 5.0
"""Share of time in the data loader, or waiting in collectives, in per cent, from which on it is shown."""
QUIET_S = 10.0
"""Time without a step from which on it is shown, in seconds, if it is also ten usual steps."""


def read_live(run_dir: RunDir) -> list[NodeLive]:
    """Return what the nodes of the last attempt have placed; files that are no such record are skipped."""
    found = []
    for path in sorted(run_dir.live_folder.glob("*.json"))[:MAX_NODES]:
        with contextlib.suppress(ForeignFileError):
            found.append(read_record(NodeLive, path))
    attempt = max((node.attempt for node in found), default=0)
    return [node for node in found if node.attempt == attempt]


def live_ranks(nodes: Sequence[NodeLive]) -> list[RankLive]:
    """Return all ranks, in order."""
    return sorted((rank for node in nodes for rank in node.ranks), key=lambda rank: rank.rank)


def in_a_line(nodes: Sequence[NodeLive], width: int = 0) -> str:
    """Describe the job in one line, the most important first.

    It is empty before any rank has made a step, unless the job hangs.

    Args:
        nodes: what the nodes have placed.
        width: number of columns; parts that do not fit are left out, from the right. 0: no limit.
    """
    ranks = live_ranks(nodes)
    timed = [rank for rank in ranks if rank.step_ms]
    if not timed:
        stands = next((node.news for node in nodes if node.news), "")
        return f"no step so far  {stands}"[: width or None] if stands else ""
    slowest = max(timed, key=lambda rank: rank.step_ms)
    parts = [f"step {min(rank.steps for rank in ranks):,}", f"{amount(slowest.step_ms)}{_trend(slowest)}"]
    idle = min(rank.idle_s for rank in ranks)
    if idle > max(QUIET_S, slowest.step_ms / 100):
        parts.append(f"no step for {idle:.0f} s")
    news = next((node.news for node in nodes if node.news), "")
    named = sorted({rank for node in nodes for rank in node.named})
    if named and width:
        parts.append(f"{named_ranks(named, 3)} late")
    elif news and not width:
        parts.append(news)
    waits = max(timed, key=lambda rank: rank.input_pct)
    if waits.input_pct >= INPUT_PCT:
        parts.append(f"input {waits.input_pct:.0f} % (rank {waits.rank})")
    longest = max(timed, key=lambda rank: rank.wait_pct or 0.0)
    if (longest.wait_pct or 0.0) >= INPUT_PCT:
        parts.append(f"waits {longest.wait_pct:.0f} % (rank {longest.rank})")
    parts += _window(nodes, min(rank.steps for rank in ranks))
    while width and len(parts) > 1 and len("  ".join(parts)) > width:
        parts.pop()
    return "  ".join(parts)


def _window(nodes: Sequence[NodeLive], steps: int) -> list[str]:
    """Describe the window that is open or comes next, in at most one part."""
    for node in nodes:
        if node.window_first is not None and node.window_last is not None and steps <= node.window_last:
            what = "next window" if steps < node.window_first else "recording"
            return [f"{what} {node.window_first:,} to {node.window_last:,}"]
    return []


def _trend(rank: RankLive) -> str:
    if not rank.before_ms:
        return ""
    change = 100.0 * (rank.step_ms / rank.before_ms - 1.0)
    return f" ({change:+.0f} %)" if abs(change) >= TREND_PCT else ""


def rank_rows(nodes: Sequence[NodeLive]) -> list[list[str]]:
    """Return a table of all ranks with its heads; named ranks come first, then those with most time before the ranks
    meet."""
    hosts = {rank.rank: node.host for node in nodes for rank in node.ranks}
    named = {rank for node in nodes for rank in node.named}
    ordered = sorted(live_ranks(nodes), key=lambda rank: (rank.rank not in named, -rank.own_ms, rank.rank))
    rows = [["", "rank", "host", "step", "step ms", "trend", "own ms", "input %", "wait %", "idle s"]]
    rows += [
        [
            ">" if rank.rank in named else "",
            str(rank.rank),
            hosts[rank.rank].partition(".")[0][:14],
            f"{rank.steps:,}",
            f"{rank.step_ms:.1f}",
            _trend(rank).strip(" ()"),
            f"{rank.own_ms:.1f}",
            f"{rank.input_pct:.1f}",
            "" if rank.wait_pct is None else f"{rank.wait_pct:.1f}",
            f"{rank.idle_s:.0f}" if rank.idle_s > QUIET_S else "",
        ]
        for rank in ordered
    ]
    return rows


def age_s(nodes: Sequence[NodeLive]) -> float:
    """Return the age of the oldest of these records in seconds, by this host's clock."""
    return max((time.time_ns() - node.time_ns) / 1e9 for node in nodes) if nodes else 0.0
