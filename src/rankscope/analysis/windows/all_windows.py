"""All windows of a run, each with the clocks of its own hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.analysis.clocks.hosts import host_clocks
from rankscope.analysis.windows.analyse import WindowResult, analyse_window
from rankscope.records.manifest import RunManifest
from rankscope.trace.columns import RankTrace

__all__ = ["analyse_windows", "usable"]


def usable(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """Return the traces that can be compared: their rank is known and they hold events."""
    return [trace for trace in traces if trace.rank is not None and len(trace.events)]


def analyse_windows(
    traces: Sequence[RankTrace],
    manifest: RunManifest | None,
    failed: Callable[[str, Exception], None],
    progress: Callable[[str], None] | None = None,
) -> list[WindowResult]:
    """Compare the ranks of each window. This is the only place that groups traces into windows.

    Args:
        traces: of known ranks.
        manifest: of the run, if there is one. It contains the clock offsets of the hosts.
        failed: called with the window in words and the error, if a window cannot be compared.
        progress: called with a line of text before each window.

    Returns:
        The windows that could be compared, in order of attempt and window.
    """
    members: dict[tuple[int, int], list[RankTrace]] = {}
    for trace in traces:
        members.setdefault((trace.attempt, trace.window), []).append(trace)
    found: list[WindowResult] = []
    for (attempt, window), ranks in sorted(members.items()):
        if progress is not None:
            which = f" of recording {len(found) + 1} of {len(members)}" if len(members) > 1 else ""
            progress(f"comparing {len(ranks)} {'rank' if len(ranks) == 1 else 'ranks'}{which}")
        try:
            ordered = sorted(ranks, key=lambda t: t.rank or 0)
            where = f"attempt {attempt}, window {window}"
            stage_failed = _within(where, failed)
            found.append(analyse_window(ordered, host_clocks(manifest, attempt, window), stage_failed))
        except Exception as error:
            failed(f"attempt {attempt}, window {window}", error)
    return found


def _within(where: str, failed: Callable[[str, Exception], None]) -> Callable[[str, Exception], None]:
    def report(stage: str, error: Exception) -> None:
        failed(f"{where}, {stage}", error)

    return report
