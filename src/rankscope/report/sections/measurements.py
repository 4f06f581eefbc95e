"""The page's tables of measurements."""

from __future__ import annotations

from collections import Counter

from rankscope.records.report import ClusterReport
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, number, numbers, text
from rankscope.report.common.metrics import METRICS, hover

__all__ = ["gains", "idle", "kernels", "queues", "ranks"]

MAX_KERNELS = 80


def ranks(report: ClusterReport) -> Table:
    """One row a rank; columns that are empty for every rank are left out."""
    rows = words.in_order(report)
    measured: list[tuple[str, list[float | None], int | None]] = [
        ("step_ms.median", [r.step_ms.get("median") for r in rows], None),
        ("step_ms.p95", [r.step_ms.get("p95") for r in rows], None),
        ("compute_pct", [r.compute_pct for r in rows], 1),
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
    heads.append(metric("steps"))
    columns.append(numbers([float(r.steps) for r in rows], 0))
    for key, values, decimals in measured:
        if any(value is not None for value in values):
            heads.append(metric(key))
            columns.append(numbers(values, decimals))
    marks = ["named" if r.rank in named else "" if r.status == "ok" else r.status for r in rows]
    anchors = [f"rank-{r.rank}" for r in rows]
    return Table("ranks", heads, [Row(*row) for row in zip(assemble(columns), anchors, marks, strict=True)])


def _status(status: str, reason: str | None) -> Cell:
    sign = {"ok": "✓", "partial": "◐", "missing": "✕", "corrupt": "✕", "skipped": "·"}.get(status, "?")
    why = words.one_line(reason, 300) if reason else ""
    return Cell(f"{sign} {status}", status, why)


def idle(report: ClusterReport) -> Table:
    """One row a rank: the times in which it computes nothing, by kind."""
    rows = sorted(report.idle, key=lambda row: row.rank)
    names = ("waiting_ms", "transfer_ms", "input_ms", "host_ms", "copy_ms")
    columns = [[number(r.rank) for r in rows], *(numbers([getattr(r, name) for r in rows]) for name in names)]
    heads = [Column("Rank", numeric=True), *(metric(name) for name in names)]
    return Table("idle", heads, [Row(cells) for cells in assemble(columns)])


def queues(report: ClusterReport) -> Table:
    """One row a rank with a device: how far its host runs ahead."""
    rows = sorted(report.queues, key=lambda row: row.rank)
    heads = [Column("Rank", numeric=True)]
    columns = [[number(r.rank) for r in rows]]
    for key, values, decimals in (
        ("starved_pct", [r.starved_pct for r in rows], 1),
        ("median_outstanding", [r.median_outstanding for r in rows], 1),
        ("max_outstanding", [float(r.max_outstanding) for r in rows], 0),
        ("median_delay_us", [r.median_delay_us for r in rows], None),
    ):
        heads.append(metric(key))
        columns.append(numbers(values, decimals))
    return Table("queues", heads, [Row(cells) for cells in assemble(columns)])


def gains(report: ClusterReport) -> Table:
    """What each step would gain by replay under other assumptions, most first."""
    items = sorted(report.what_if.items(), key=lambda item: -(item[1] or 0.0))
    step = report.verdict.step_ms
    shares = [words.share_of_step(gain, step) for _, gain in items]
    columns = [
        [text(words.scenario(name)) for name, _ in items],
        numbers([gain for _, gain in items]),
        numbers(shares, 0),
    ]
    heads = [Column("With"), metric("what_if"), metric("what_if_pct")]
    return Table("gains", heads, [Row(cells) for cells in assemble(columns)])


def kernels(report: ClusterReport) -> Table:
    """One row a kernel or operator, those with most time first."""
    ordered = sorted(report.kernels, key=lambda kernel: -(kernel.ms_per_step or 0.0))
    rows = ordered[:MAX_KERNELS]
    name = "Kernel" if words.has_accelerator(report) else "Operator"
    share = METRICS["share_pct"]
    heads = [Column(name), Column("Category"), metric("kernel.ms_per_step")]
    heads += [
        Column(share.label, f"% of {name.lower()} time", hover("share_pct").replace("kernel", name.lower()), True)
    ]
    heads += [
        metric("launches_per_step", None if name == "Kernel" else "Calls"),
        metric("max_over_median"),
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
    hidden = len(ordered) - len(rows)
    note = f"{hidden:,} more, each with less time, are in report.json." if hidden else ""
    return Table("kernels", heads, [Row(cells) for cells in assemble(columns)], note)


def _kernel_names(names: list[str]) -> list[Cell]:
    """Short names where they tell the kernels apart, else the full ones without their middle."""
    short = [words.short_name(name) for name in names]
    often = Counter(short)
    return [
        Cell(brief if often[brief] == 1 else words.one_line(name, 120), name.lower()[:80], words.one_line(name, 1000))
        for brief, name in zip(short, names, strict=True)
    ]
