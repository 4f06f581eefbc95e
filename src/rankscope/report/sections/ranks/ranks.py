"""One row per rank: its steps, and the parts of its time."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.report.common import plain_text, summary
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "ranks"]

METRICS: dict[str, Metric] = {
    "steps": Metric("Ranks", "Steps", "count", "Steps of this rank that were recorded and analysed."),
    "step_ms.median": Metric(
        "Ranks",
        "Step",
        "ms, median",
        "The median duration of the rank's recorded steps: from the end of the last work of one step to that of the "
        "next, on the device; without one, on the host.",
        "Recording itself is in it; see recording overhead.",
        "HTA drops the last step of a trace.",
    ),
    "step_ms.p95": Metric(
        "Ranks", "p95", "ms, 95th percentile", "The step duration that 95 % of the steps stay below."
    ),
    "compute_pct": Metric(
        "Ranks",
        "Compute",
        "% of window",
        "Time in which the device (without one: the rank's main thread) computes.",
        "Includes compute that runs beside communication or copies. Overlapping kernels count once.",
        "HTA sorts some kernels into the wrong kind; ours come from one table of names.",
    ),
    "fused_pct": Metric(
        "Ranks",
        "Fused",
        "% of window",
        "Time in kernels that compute and communicate at once and that no other compute runs beside: matrix products "
        "that gather their input or scatter their result, experts' work with dispatch and combine in one kernel.",
        "Neither compute nor exposed communication: a trace does not tell how much of such a kernel is which. It hides "
        "communication as compute does. An all-reduce that normalises its result on the way is communication.",
    ),
    "exposed_comm_pct": Metric(
        "Ranks",
        "Exposed comm.",
        "% of window",
        "Communication of this rank that no compute of the same rank hides.",
        "Includes waiting for other ranks inside collectives.",
    ),
    "memcpy_pct": Metric(
        "Ranks",
        "Copies",
        "% of window",
        "Copies and memsets that neither compute nor communication hides.",
    ),
    "idle_pct": Metric(
        "Ranks",
        "Idle",
        "% of window",
        "Time in which the rank does nothing: no compute, no communication, no copy.",
        "Compute, fused kernels (where there are any), exposed communication, copies and idle sum to 100 %.",
        "HTA's temporal breakdown states an idle share too, over the steps that HTA keeps.",
    ),
    "comm_pct": Metric(
        "Ranks",
        "Comm.",
        "% of window",
        "All communication of this rank, hidden or not. Not part of the sum of 100 %.",
    ),
    "overlap_pct": Metric(
        "Ranks",
        "Overlap",
        "% of communication",
        "The share of this rank's communication that is hidden behind its own compute.",
        "Refers to communication time, not to the window.",
        "The same definition as HTA's comm/comp overlap. HTA rounds times to microseconds unless told otherwise, "
        "which can push it above 100 %.",
    ),
    "wait_ms_per_step": Metric(
        "Ranks",
        "Waits",
        "ms per step",
        "Time this rank's collectives wait for the last rank to arrive, summed over a step.",
        "Waiting is not cost: it may be hidden by compute.",
    ),
    "caused_wait_ms_per_step": Metric(
        "Ranks",
        "Makes others wait",
        "ms per step",
        "Waiting of the other ranks while this rank is the last to arrive, summed over them.",
        "Grows with the number of ranks; compare ranks, not runs.",
    ),
}


def ranks(report: ClusterReport) -> Table:
    """One row a rank; columns that are empty for every rank are left out."""
    rows = summary.in_order(report)
    measured: list[tuple[str, list[float | None], int | None]] = [
        ("step_ms.median", [r.step_ms.get("median") for r in rows], None),
        ("step_ms.p95", [r.step_ms.get("p95") for r in rows], None),
        ("compute_pct", [r.compute_pct for r in rows], 1),
        ("fused_pct", [r.fused_pct for r in rows], 1),
        ("exposed_comm_pct", [r.exposed_comm_pct for r in rows], 1),
        ("memcpy_pct", [r.memcpy_pct for r in rows], 1),
        ("idle_pct", [r.idle_pct for r in rows], 1),
        ("comm_pct", [r.comm_pct for r in rows], 1),
        ("overlap_pct", [r.overlap_pct for r in rows], 1),
        ("wait_ms_per_step", [r.wait_ms_per_step for r in rows], None),
        ("caused_wait_ms_per_step", [r.caused_wait_ms_per_step for r in rows], None),
    ]
    heads = [Column("Rank", numeric=True), Column("Status")]
    named = set(report.verdict.ranks)
    columns = [[Cell(str(r.rank), r.rank) for r in rows], [_status(r.status, r.reason) for r in rows]]
    for label, names in (("Host", [r.host for r in rows]), ("Device", [r.device for r in rows])):
        if any(names) and (label == "Host" or len(set(names)) > 1):
            heads.append(Column(label))
            columns.append([text(name, 32) for name in names])
    heads.append(metric(METRICS["steps"]))
    columns.append(numbers([float(r.steps) for r in rows], 0))
    for key, values, decimals in measured:
        if any(value is not None for value in values):
            heads.append(metric(METRICS[key]))
            columns.append(numbers(values, decimals))
    if rows and not summary.is_recorded(report):
        heads.append(Column("Reason"))
        columns.append([text(r.reason, 160) for r in rows])
    marks = ["named" if r.rank in named else "" if r.status == "ok" else r.status for r in rows]
    anchors = [f"rank-{r.rank}" for r in rows]
    return Table("ranks", heads, [Row(*row) for row in zip(assemble(columns), anchors, marks, strict=True)])


def _status(status: str, reason: str | None) -> Cell:
    sign = {"ok": "✓", "partial": "◐", "missing": "✕", "corrupt": "✕", "skipped": "·"}.get(status, "?")
    why = plain_text.one_line(reason, 300) if reason else ""
    return Cell(f"{sign} {status}", status, why)


def _build(report: ClusterReport) -> Variables:
    return tables("", ("Ranks", ranks(report)))


SECTION = Section("ranks", "Ranks", "Ranks", _build, METRICS)
