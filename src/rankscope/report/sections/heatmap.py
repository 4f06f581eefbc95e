"""Rank x step numbers for the page's heatmap, compact enough for a thousand ranks."""

from __future__ import annotations

from typing import Any

from rankscope.records.report import ClusterReport
from rankscope.records.rows import StepRow
from rankscope.report.common.metrics import METRICS, hover

__all__ = ["MAX_CELLS", "heatmap", "waits_for_input"]

MAX_CELLS = 60_000
"""Above this many cells neighbouring steps share a column: the page stays small and fast."""

_METRICS = {
    "lateness_ms": "lateness_ms",
    "duration_ms": "duration_ms",
    "exposed_comm_ms": "step.exposed_comm_ms",
    "idle_ms": "step.idle_ms",
    "input_ms": "step.input_ms",
    "wait_ms": "step.wait_ms",
}
"""Field of a step row -> its definition."""


def waits_for_input(report: ClusterReport) -> bool:
    """Whether any step waits for its input, so that there is something to tell apart."""
    return any(row.input_ms for row in report.steps)


def heatmap(report: ClusterReport) -> dict[str, Any] | None:
    """Return ``{ranks, columns, merged, metrics: [{key, label, hover, values}], compute, named}``; None without steps.

    ``values`` are hundredths of a millisecond, row by row (ranks) and column by column, null where there is none.
    Where steps share a column, the value farthest from zero stands.
    """
    if not report.steps:
        return None
    ranks = sorted({row.rank for row in report.steps})
    keys = sorted({(row.attempt, row.window, row.step) for row in report.steps})
    merged = -(-len(ranks) * len(keys) // MAX_CELLS)
    column_of = {key: index // merged for index, key in enumerate(keys)}
    columns = [_label(keys[start : start + merged]) for start in range(0, len(keys), merged)]
    place = {rank: index * len(columns) for index, rank in enumerate(ranks)}
    cells = [(place[row.rank] + column_of[row.attempt, row.window, row.step], row) for row in report.steps]
    size = len(ranks) * len(columns)
    shown = [name for name in _METRICS if name != "input_ms" or waits_for_input(report)]
    grids = {name: _grid(cells, name, size) for name in shown}
    metrics = [
        {"key": name, "label": METRICS[_METRICS[name]].label, "hover": hover(_METRICS[name]), "values": values}
        for name, values in grids.items()
        if any(value is not None for value in values)
    ]
    if not metrics:
        return None
    # Whole steps only: the largest values of merged steps need not come from the same step and would not add up.
    compute = _grid(cells, "compute_ms", size) if merged == 1 else None
    named = sorted(set(report.verdict.ranks))
    return {
        "ranks": ranks,
        "columns": columns,
        "merged": merged,
        "metrics": metrics,
        "compute": compute,
        "named": named,
    }


def _label(keys: list[tuple[int, int, int]]) -> dict[str, Any]:
    attempt, window, first = keys[0]
    last = keys[-1][2]
    return {"window": f"attempt {attempt}, window {window}", "step": str(first) if first == last else f"{first}-{last}"}


def _grid(cells: list[tuple[int, StepRow]], name: str, size: int) -> list[int | None]:
    grid: list[int | None] = [None] * size
    for index, row in cells:
        value: float | None = getattr(row, name)
        if value is None:
            continue
        scaled = round(value * 100)
        present = grid[index]
        if present is None or abs(scaled) > abs(present):
            grid[index] = scaled
    return grid
