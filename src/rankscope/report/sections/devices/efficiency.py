"""How close to its peak the device computes, by kind of work."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.records.rows import Efficiency
from rankscope.report.common import plain_text
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "efficiency"]

METRICS: dict[str, Metric] = {
    "work.ms_per_step": Metric(
        "Compute efficiency", "Time", "ms per step", "Device time of these kernels, on average over the ranks.",
        "The ranks that are looked at are at most four, spread over the job.", accelerator=True,
    ),
    "work.kernels_per_step": Metric(
        "Compute efficiency", "Kernels", "count per step", "How many of these kernels a step launches.",
        accelerator=True,
    ),
    "work.tflops": Metric(
        "Compute efficiency", "TFLOP/s", "10^12 operations per second",
        "Operations of matrix products, 2 m n k each by the recorded shapes, per second in which they run.",
        "Convolutions and attention are not counted. Without shapes (record_shapes) nothing is.", accelerator=True,
    ),
    "work.gb_s": Metric(
        "Compute efficiency", "GB/s", "10^9 bytes per second",
        "What element-wise kernels read and write at least: each input once, and one output.",
        "What stays in a cache can push it above the memory's bandwidth.", accelerator=True,
    ),
    "work.peak_pct": Metric(
        "Compute efficiency", "Of the peak", "%",
        "The nearer of both to what the device's data sheet gives: dense bf16, and memory bandwidth.",
        accelerator=True,
    ),
}  # fmt: skip


def efficiency(known: Efficiency) -> Table:
    """One row a kind of work, most time first."""
    rows = known.groups
    names = ("ms_per_step", "kernels_per_step", "tflops", "gb_s", "peak_pct")
    decimals = {"kernels_per_step": 0, "tflops": 0, "gb_s": 0, "peak_pct": 0}
    heads, columns = [Column("Work")], [[text(row.name) for row in rows]]
    for name in names:
        values = [getattr(row, name) for row in rows]
        if any(value is not None for value in values):
            heads.append(metric(METRICS[f"work.{name}"]))
            columns.append(numbers(values, decimals.get(name)))
    heads.append(Column("Bound by"))
    columns.append([text({"math": "arithmetic", "memory": "memory", "launch": "launches"}.get(r.bound)) for r in rows])
    return Table("efficiency", heads, [Row(cells) for cells in assemble(columns)])


def _lead(known: Efficiency) -> str:
    device = plain_text.one_line(known.device or "the device", 60)
    sentences = []
    if known.tflops is not None:
        of = "" if known.peak_pct is None else f", {known.peak_pct:.0f} % of the {known.peak_tflops:,.0f} of {device}"
        counted = f"{known.counted_pct:.0f} % of compute time is counted"
        sentences.append(f"Over the whole step a rank computes {known.tflops:,.0f} TFLOP/s{of} ({counted}).")
    elif not known.shapes:
        sentences.append("Shapes were not recorded, so operations cannot be counted (-S capture=shapes).")
    if known.small_kernels >= 1:
        sentences.append(
            f"{known.small_kernels:,.0f} kernels a step are shorter than 10 µs, {words.ms(known.small_ms)} together."
        )
    if known.plain_ms:
        sentences.append(f"Matrix products without tensor cores take {words.ms(known.plain_ms)} a step.")
    return " ".join(sentences)


def _build(report: ClusterReport) -> Variables | None:
    known = report.efficiency
    if known is None or not known.groups:
        return None
    return tables(_lead(known), ("Device time by kind of work", efficiency(known)))


SECTION = Section("efficiency", "Efficiency", "Compute efficiency", _build, METRICS, optional=True)
