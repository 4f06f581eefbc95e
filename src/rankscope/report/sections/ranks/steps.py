"""The heat map of ranks by steps, compact enough for a thousand ranks."""

from __future__ import annotations

from typing import Any

from rankscope.records.report import ClusterReport
from rankscope.records.rows import StepRow
from rankscope.report.common import breakdown, plain_text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables
from rankscope.report.sections.ranks import ranks, time

__all__ = ["MAX_CELLS", "METRICS", "SECTION", "heatmap", "waits_for_input"]

METRICS: dict[str, Metric] = {
    "step.cost_ms": Metric(
        "Steps",
        "Cost",
        "ms",
        "How much shorter this step would be without this rank's extra time, by replay.",
        "0 for a rank that makes no other wait long enough to matter. On a busy machine, time without a CPU is in it.",
    ),
    "lateness_ms": Metric(
        "Steps",
        "Lateness",
        "ms",
        "How much later than the median of the other ranks this rank arrives at the step's collectives, on average.",
        "On aligned clocks. Negative is early. Differences below the clock error mean nothing.",
        "HTA compares raw clocks.",
    ),
    "duration_ms": Metric(
        "Steps",
        "Step time",
        "ms",
        "From the end of the last work of the step before to that of this one, on the device; without one, on the "
        "host.",
    ),
    "step.exposed_comm_ms": Metric(
        "Steps", "Exposed communication", "ms", "Communication of this rank and step that no compute of the rank hides."
    ),
    "step.idle_ms": Metric(
        "Steps",
        "Idle",
        "ms",
        "Time of this step with no compute, no communication and no copy.",
        "On a device, from the last work of the step before to the last of this one: a queue is not idleness.",
    ),
    "step.input_ms": Metric(
        "Steps",
        "Idle: input",
        "ms",
        "Idle time of this step in which the host sits in the data loader.",
        "Summed over the steps it is the rank's, but for what lies between two steps on a CPU.",
    ),
    "step.wait_ms": Metric(
        "Steps", "Waiting", "ms", "Time this rank's collectives of this step wait for the last rank, hidden or not."
    ),
}

MAX_CELLS = 24_000
"""Above this number of cells neighbouring steps share a column, to keep the page small and fast."""

_FEW_HOSTS = 3
"""From so many hosts on, there is a map of them."""

_SHOWN = {
    "cost_ms": "step.cost_ms",
    "lateness_ms": "lateness_ms",
    "duration_ms": "duration_ms",
    "exposed_comm_ms": "step.exposed_comm_ms",
    "idle_ms": "step.idle_ms",
    "input_ms": "step.input_ms",
    "wait_ms": "step.wait_ms",
}
"""Field of a step row -> its definition."""


def waits_for_input(report: ClusterReport) -> bool:
    """Return whether any step waits for its input, so that idle time is shown in two kinds."""
    return any(row.input_ms for row in report.steps)


def heatmap(report: ClusterReport) -> dict[str, Any] | None:
    """Return ``{ranks, columns, merged, metrics: [{key, label, hover, values}], compute, waiting, named, hosts}``; None
    without steps.

    ``values`` are hundredths of a millisecond, by row (rank) and column, null if there is none. If steps share a
    column, the value farthest from zero is shown.
    """
    if not report.steps:
        return None
    rows = sorted({row.rank for row in report.steps})
    keys = sorted({(row.attempt, row.window, row.step) for row in report.steps})
    merged = -(-len(rows) * len(keys) // MAX_CELLS)
    column_of = {key: index // merged for index, key in enumerate(keys)}
    columns = [_label(keys[start : start + merged]) for start in range(0, len(keys), merged)]
    place = {rank: index * len(columns) for index, rank in enumerate(rows)}
    cells = [(place[row.rank] + column_of[row.attempt, row.window, row.step], row) for row in report.steps]
    size = len(rows) * len(columns)
    shown = [name for name in _SHOWN if name != "input_ms" or waits_for_input(report)]
    grids = {name: _grid(cells, name, size) for name in shown}
    metrics = [
        {"key": name, "label": METRICS[_SHOWN[name]].label, "hover": METRICS[_SHOWN[name]].hover, "values": values}
        for name, values in grids.items()
        if any(value is not None for value in values)
    ]
    if not metrics:
        return None
    # Single steps only: the largest values of merged steps may come from different steps and would not add up.
    compute, waiting = (_grid(cells, name, size) if merged == 1 else None for name in ("compute_ms", "waiting_ms"))
    named = sorted(set(report.verdict.ranks))
    return {
        "ranks": rows,
        "columns": columns,
        "merged": merged,
        "metrics": metrics,
        "compute": compute,
        "waiting": waiting,
        "named": named,
        "hosts": _hosts(report, rows),
    }


def _hosts(report: ClusterReport, ranks: list[int]) -> dict[str, Any] | None:
    """Return ``{names, each}``: the hosts in order of rank, and how many ranks each has; None if the ranks are few, or
    not in the same number on all hosts, one host after the other."""
    host = {row.rank: row.host for row in report.ranks}
    names = list(dict.fromkeys(host.get(rank) for rank in ranks))
    each = len(ranks) // max(len(names), 1)
    regular = [name for name in names for _ in range(each)] == [host.get(rank) for rank in ranks]
    if None in names or len(names) < _FEW_HOSTS or each < 2 or not regular:
        return None
    return {"names": [plain_text.one_line(name or "", 24) for name in names], "each": each}


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


def _build(report: ClusterReport) -> Variables | None:
    if not report.steps:
        return None
    split = all(row.waiting_ms is not None for row in report.steps)
    shown = {"compute": "compute_pct"}
    shown |= {"waiting": "waiting_ms", "transfer": "transfer_ms"} if split else {"comm": "step.exposed_comm_ms"}
    if any(_rest(row) >= 0.005 * (row.duration_ms or 0.0) > 0 for row in report.steps):
        shown["copy"] = "memcpy_pct"
    if waits_for_input(report):
        shown["input"] = "step.input_ms"
    shown["host"] = "host_ms"
    defined = {**ranks.METRICS, **time.METRICS, **METRICS}
    names = {"copy": "Copies and rest"}
    legend = [(key, names.get(key, breakdown.LEGEND[key][0]), defined[name].hover) for key, name in shown.items()]
    return {"legend": legend}


def _rest(row: StepRow) -> float:
    return (row.duration_ms or 0.0) - sum(part or 0.0 for part in (row.compute_ms, row.exposed_comm_ms, row.idle_ms))


SECTION = Section("steps", "Steps", "Ranks by steps", _build, METRICS, "steps.html.j2")
