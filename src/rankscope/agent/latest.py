"""Key numbers of a running job for the script's own logger, as last written by the helper of this node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rankscope.records.codec import from_json
from rankscope.records.running.live import NodeLive

__all__ = ["latest_numbers"]


def latest_numbers(path: Path, described: Mapping[str, float] | None = None) -> dict[str, float] | None:
    """See :func:`rankscope.latest`.

    Args:
        path: the node's status file, on its local disk.
        described: what a step of the job processes, as the script has said.
    """
    try:
        live = from_json(NodeLive, path.read_bytes())
    except (OSError, ValueError):
        return None
    timed = [rank for rank in live.ranks if rank.step_ms]
    if not timed:
        return None
    slowest = max(timed, key=lambda rank: rank.own_ms)
    found = {
        "step": min(rank.steps for rank in timed),
        "step_ms": max(rank.step_ms for rank in timed),
        "own_ms": slowest.own_ms,
        "slowest_rank": slowest.rank,
        "input_pct": max(rank.input_pct for rank in timed),
        "named_ranks": len(live.named),
    }
    known = [rank.wait_pct for rank in timed if rank.wait_pct is not None]
    if known:
        found["wait_pct"] = max(known)
    for name in {"tokens", "samples"} & (described or {}).keys():
        found[f"{name}_per_s"] = 1e3 * (described or {})[name] / found["step_ms"]
    return {f"rankscope/{name}": float(value) for name, value in found.items()}
