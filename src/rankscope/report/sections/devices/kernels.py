"""Kernels or operators by time."""

from __future__ import annotations

import json
from collections import Counter

from rankscope.records.report import ClusterReport
from rankscope.records.rows import KernelRow
from rankscope.report.common import plain_text, summary
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, number, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "kernels"]

MAX_KERNELS = 80
_HOVER = 400
_SHOWN = 40
"""Characters of a name that are shown on hover; report.json has the full name."""

METRICS: dict[str, Metric] = {
    "kernel.ms_per_step": Metric(
        "Kernels and operators",
        "Time",
        "ms per step",
        "Summed duration in one step, averaged over the ranks that ran it.",
        "Kernels that run side by side both count, so the sum can exceed the step. An operator's time is its own, "
        "without that of the operators that it calls.",
        "HTA's kernel breakdown is wrong above ten kernels.",
    ),
    "launches_per_step": Metric("Kernels and operators", "Launches", "per step", "How often it runs in one step."),
    "kernel.operator": Metric(
        "Kernels and operators",
        "Operator",
        "",
        "The operator of PyTorch that launches most of the kernel's time, and the shapes of its inputs.",
        "Shapes need capture.record_shapes.",
    ),
    "kernel.module": Metric(
        "Kernels and operators",
        "Module",
        "",
        "The module of the model in whose calls most of the kernel's time is launched, with those around it.",
        "Needs capture.with_stack. Backward passes run outside of the modules' calls and do not count.",
    ),
    "kernel.tflops": Metric(
        "Kernels and operators",
        "Rate",
        "TFLOP/s",
        "Operations by the shapes of the operator's inputs, over the kernel's time: of products and convolutions.",
        "Of a call with several kernels it is not known which does what; these are left out.",
    ),
    "share_pct": Metric(
        "Kernels and operators",
        "Share",
        "% of kernel time",
        "Its time over all kernel or operator time of those ranks.",
    ),
    "max_over_median": Metric(
        "Kernels and operators",
        "Max / median",
        "ratio",
        "Time on the rank with most of it, over the rank in the middle. 1.00 is even.",
    ),
}


def kernels(report: ClusterReport) -> Table:
    """Return one row per kernel or operator, those with most time first."""
    ordered = sorted(report.kernels, key=lambda kernel: -(kernel.ms_per_step or 0.0))
    rows = ordered[:MAX_KERNELS]
    name = "Kernel" if summary.has_accelerator(report) else "Operator"
    share = METRICS["share_pct"]
    heads = [Column(name), Column("Category"), metric(METRICS["kernel.ms_per_step"])]
    heads += [Column(share.label, f"% of {name.lower()} time", share.hover.replace("kernel", name.lower()), True)]
    heads += [
        metric(METRICS["launches_per_step"], None if name == "Kernel" else "Calls"),
        metric(METRICS["max_over_median"]),
        Column("Most on rank", numeric=True),
    ]
    columns = [
        _kernel_names([r.name for r in rows]),
        [text(r.category, 24) for r in rows],
        numbers([r.ms_per_step for r in rows]),
        numbers([r.share_pct for r in rows], 1),
        numbers([r.launches_per_step for r in rows], 1),
        numbers([r.max_over_median for r in rows], 2),
        [number(r.max_rank) for r in rows],
    ]
    if any(r.operator for r in rows):
        origin = METRICS["kernel.operator"]
        heads[1], columns[1] = Column(origin.label, "", origin.hover), [_operator(r) for r in rows]
    if any(r.module for r in rows):
        module = METRICS["kernel.module"]
        heads.insert(2, Column(module.label, "", module.hover))
        columns.insert(2, [text(r.module, 40) for r in rows])
    if any(r.tflops for r in rows):
        heads.append(metric(METRICS["kernel.tflops"]))
        columns.append(numbers([r.tflops for r in rows], 0))
    hidden = len(ordered) - len(rows)
    note = f"{hidden:,} more, each with less time, are in report.json." if hidden else ""
    return Table("kernels", heads, [Row(cells) for cells in assemble(columns)], note)


def _operator(row: KernelRow) -> Cell:
    """Return the operator with its shapes as far as they fit, all of them on hover; without one the category."""
    if row.operator is None:
        return text(row.category, 24)
    shapes = _shapes(row.shapes)
    shown = f"{row.operator} {shapes}".strip()
    brief = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1].rstrip(', ')}…"
    return Cell(plain_text.one_line(brief), row.operator, plain_text.one_line(shown, _HOVER))


def _shapes(recorded: str | None) -> str:
    """Return ``[[8, 32], [32, 16], []]`` as ``8x32, 32x16``: the inputs that have a size."""
    try:
        inputs = json.loads(recorded or "[]")
    except ValueError:
        return ""
    lists = [dims for dims in inputs if isinstance(dims, list) and dims]
    flat = [size for dims in lists for size in (dims if isinstance(dims[0], list) else [dims])]  # a list of tensors
    return ", ".join("x".join(map(str, size)) for size in flat)


def _kernel_names(names: list[str]) -> list[Cell]:
    """Return short names if unique, else the full ones without their middle; the full ones on hover."""
    short = [plain_text.short_name(name) for name in names]
    often = Counter(short)
    shown = [brief if often[brief] == 1 else plain_text.one_line(n, 120) for brief, n in zip(short, names, strict=True)]
    full = [plain_text.one_line(name, _HOVER) for name in names]
    return [Cell(s, name.lower()[:80], f if f != s else "") for s, f, name in zip(shown, full, names, strict=True)]


def _build(report: ClusterReport) -> Variables | None:
    if not report.kernels:
        return None
    name = "Kernels" if summary.has_accelerator(report) else "Operators"
    return tables("", (name, kernels(report))) | {"nav": name, "title": name}


SECTION = Section("kernels", "Kernels", "Kernels", _build, METRICS)
