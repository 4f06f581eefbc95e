"""Names of what a late rank does beyond its peers: operators, and lines of the user's code."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.operators.compare import operator_excess
from rankscope.analysis.operators.python_lines import user_frames
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.evidence import Suspect
from rankscope.statistics.thresholds import MATTERS

__all__ = ["name_what_they_do", "worst_window"]

MOST_RANKS = 8
"""Number of ranks that are read, in order of cost, because reading is done event by event."""
MOST_LINES = 3


def name_what_they_do(suspects: Sequence[Suspect], windows: Sequence[WindowResult], step_ms: float) -> None:
    """Set ``operators`` and ``lines`` of the ranks that may be named, from the window in which each costs most."""
    for suspect in [s for s in suspects if s.cost_ms > MATTERS * step_ms or s.lost][:MOST_RANKS]:
        window, column = worst_window(windows, suspect.rank)
        if window is None:
            continue
        view = window.views[column]
        peers = [c for c in window.plan.peers[column] if c != column] if window.plan.peers else []
        if peers:
            suspect.operators = operator_excess(view, window.views[peers[len(peers) // 2]])
        frames = user_frames(view)
        if not len(frames):
            continue
        steps = max(view.steps, 1)
        for cause in suspect.explained:
            spans = window.profiles[column].spans.get(cause)
            if spans is not None:
                found = list(frames.inside(spans).items())[:MOST_LINES]
                suspect.lines[cause] = {line: ns / 1e6 / steps for line, ns in found}


def worst_window(windows: Sequence[WindowResult], rank: int) -> tuple[WindowResult | None, int]:
    """Return the window in which a rank costs most, and its column there."""
    found: tuple[WindowResult | None, int] = (None, 0)
    most = float("-inf")
    for window in windows:
        for column, view in enumerate(window.views):
            if view.rank != rank or column >= len(window.lateness) or column >= len(window.profiles):
                continue
            cost = float(window.lateness[column].gains.sum())
            if cost > most:
                found, most = (window, column), cost
    return found
