"""End of a job, and reasons why ranks left no trace: from its manifest and its files."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.records.evidence import JobEnded
from rankscope.records.manifest import RunManifest
from rankscope.records.report import SourceFile
from rankscope.records.rows import RankSummary

__all__ = ["how_it_ended", "lost_ranks"]


def lost_ranks(ranks: Sequence[RankSummary]) -> dict[str, list[int]]:
    """Return the reasons why ranks have no numbers -> those ranks, the most frequent reason first."""
    found: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.compute_pct is None and rank.reason:
            found.setdefault(rank.reason, []).append(rank.rank)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def how_it_ended(manifest: RunManifest | None, sources: Sequence[SourceFile]) -> JobEnded | None:
    """Return how a run ended; None for traces without a manifest."""
    if manifest is None:
        return None
    processes = [*manifest.lives, *(record for window in manifest.windows for record in window.records)]
    return JobEnded(
        exit_code=manifest.exit_code,
        steps=max((process.steps_counted for process in processes), default=0),
        traces=any(source.status != "ignored" for source in sources),
        notes=manifest.notes,
    )
