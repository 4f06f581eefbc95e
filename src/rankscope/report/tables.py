"""The page's tables as plain data: columns with their definitions, rows of cells."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from rankscope.model import ClusterReport
from rankscope.report import words
from rankscope.report.metrics import METRICS, hover

__all__ = ["Cell", "Column", "Row", "Table", "clock_offsets", "groups", "hta", "kernels", "ranks", "sources"]

MAX_KERNELS = 80
_MAX_HTA_ROWS = 400


class Column(NamedTuple):
    """A column's head. ``hover`` is the number's definition, empty for plain text."""

    label: str
    unit: str = ""
    hover: str = ""
    numeric: bool = False


class Cell(NamedTuple):
    """What is shown, what it is sorted by, and the full text where what is shown was shortened."""

    text: str
    sort: float | str = ""
    title: str = ""


class Row(NamedTuple):
    """Cells, the element's id and a mark (``named`` for the verdict's ranks, or a status)."""

    cells: list[Cell]
    anchor: str = ""
    mark: str = ""


class Table(NamedTuple):
    """A table with a name that is unique in the page."""

    name: str
    columns: list[Column]
    rows: list[Row]
    note: str = ""


def _metric(key: str, label: str | None = None) -> Column:
    metric = METRICS[key]
    return Column(label or metric.label, metric.unit, hover(key), numeric=True)


def _numbers(values: list[float | None], decimals: int | None = None) -> list[Cell]:
    """Format one column with the same number of decimals throughout, so that digits line up."""
    if decimals is None:
        largest = max((abs(value) for value in values if value is not None), default=0.0)
        decimals = 0 if largest >= 10_000 else 1 if largest >= 100 else 2 if largest >= 1 else 3
    return [Cell(words.DASH, "") if v is None else Cell(f"{v:,.{decimals}f}", v) for v in values]


def _text(value: object, limit: int = 60) -> Cell:
    full = words.one_line(words.DASH if value is None else value, 1000)
    short = words.elide(full, limit)
    return Cell(short, full.lower()[:80], full if full != short else "")


def _assemble(columns: list[list[Cell]]) -> list[list[Cell]]:
    return [list(cells) for cells in zip(*columns, strict=True)]


def ranks(report: ClusterReport) -> Table:
    """One row a rank; columns that are empty for every rank are left out."""
    rows = words.in_order(report)
    numbers: list[tuple[str, list[float | None], int | None]] = [
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
    for label, texts in (("Host", [r.host for r in rows]), ("Device", [r.device for r in rows])):
        if any(texts) and (label == "Host" or len(set(texts)) > 1):
            heads.append(Column(label))
            columns.append([_text(text, 32) for text in texts])
    heads.append(_metric("steps"))
    columns.append(_numbers([float(r.steps) for r in rows], 0))
    for key, values, decimals in numbers:
        if any(value is not None for value in values):
            heads.append(_metric(key))
            columns.append(_numbers(values, decimals))
    marks = ["named" if r.rank in named else "" if r.status == "ok" else r.status for r in rows]
    anchors = [f"rank-{r.rank}" for r in rows]
    return Table("ranks", heads, [Row(*row) for row in zip(_assemble(columns), anchors, marks, strict=True)])


def _status(status: str, reason: str | None) -> Cell:
    sign = {"ok": "✓", "partial": "◐", "missing": "✕", "corrupt": "✕"}.get(status, "?")
    text = words.one_line(reason, 300) if reason else ""
    return Cell(f"{sign} {status}", status, text)


def groups(report: ClusterReport) -> Table:
    """One row a process group and kind of collective."""
    rows = report.groups
    heads = [Column("Group"), Column("Ranks"), Column("Collective"), Column("Type")]
    heads += [
        _metric("calls_per_step"),
        _metric("megabytes_per_call"),
        _metric("group.wait_ms_per_step"),
        _metric("group.transfer_ms_per_step"),
        _metric("group.exposed_ms_per_step"),
        _metric("bus_gb_s"),
    ]
    columns = [
        [_text(r.group, 40) for r in rows],
        [_text(words.ranks(r.ranks), 28) for r in rows],
        [_text(r.collective, 40) for r in rows],
        [_text(r.dtype, 20) for r in rows],
        _numbers([r.calls_per_step for r in rows], 1),
        _numbers([r.megabytes_per_call for r in rows]),
        _numbers([r.wait_ms_per_step for r in rows]),
        _numbers([r.transfer_ms_per_step for r in rows]),
        _numbers([r.exposed_ms_per_step for r in rows]),
        _numbers([r.bus_gb_s for r in rows]),
    ]
    return Table("groups", heads, [Row(cells) for cells in _assemble(columns)])


def kernels(report: ClusterReport) -> Table:
    """One row a kernel or operator, those with most time first."""
    ordered = sorted(report.kernels, key=lambda kernel: -(kernel.ms_per_step or 0.0))
    rows = ordered[:MAX_KERNELS]
    name = "Kernel" if words.has_accelerator(report) else "Operator"
    share = METRICS["share_pct"]
    heads = [Column(name), Column("Category"), _metric("kernel.ms_per_step")]
    heads += [
        Column(share.label, f"% of {name.lower()} time", hover("share_pct").replace("kernel", name.lower()), True)
    ]
    heads += [
        _metric("launches_per_step", None if name == "Kernel" else "Calls"),
        _metric("max_over_median"),
        Column("Most on rank", numeric=True),
    ]
    columns = [
        _kernel_names([r.name for r in rows]),
        [_text(r.category, 24) for r in rows],
        _numbers([r.ms_per_step for r in rows]),
        _numbers([r.share_pct for r in rows], 1),
        _numbers([r.launches_per_step for r in rows], 1),
        _numbers([r.max_over_median for r in rows], 2),
        [Cell(words.DASH, "") if r.max_rank is None else Cell(str(r.max_rank), r.max_rank) for r in rows],
    ]
    hidden = len(ordered) - len(rows)
    note = f"{hidden:,} more, each with less time, are in report.json." if hidden else ""
    return Table("kernels", heads, [Row(cells) for cells in _assemble(columns)], note)


def _kernel_names(names: list[str]) -> list[Cell]:
    """Short names where they tell the kernels apart, else the full ones without their middle."""
    short = [words.short_name(name) for name in names]
    often = Counter(short)
    return [
        Cell(brief if often[brief] == 1 else words.one_line(name, 120), name.lower()[:80], words.one_line(name, 1000))
        for brief, name in zip(short, names, strict=True)
    ]


def clock_offsets(report: ClusterReport) -> Table:
    """Offset of each rank's clock."""
    items = sorted(report.clock.offsets_us.items(), key=lambda item: (len(item[0]), item[0]))
    cells = _numbers([value for _, value in items])
    rows = [
        Row([Cell(words.one_line(rank, 20), float(rank) if rank.isdecimal() and rank.isascii() else rank), cell])
        for (rank, _), cell in zip(items, cells, strict=True)
    ]
    return Table("clock-offsets", [Column("Rank", numeric=True), _metric("offset_us")], rows)


def sources(report: ClusterReport) -> Table:
    """Files that were not simply used: ignored, unusable, or repaired."""
    rows = [
        Row(
            [
                _text(source.path, 90),
                Cell("repaired" if source.status == "used" else source.status, source.status),
                Cell(words.DASH, "") if source.rank is None else Cell(str(source.rank), source.rank),
                _text("; ".join([source.reason or "", *_repairs(source.repairs)]).strip("; ") or None, 160),
            ]
        )
        for source in report.sources
        if source.status != "used" or source.repairs or source.reason
    ]
    heads = [Column("File"), Column("What became of it"), Column("Rank", numeric=True), Column("Why")]
    used = sum(source.status == "used" for source in report.sources)
    return Table("sources", heads, rows, f"{used:,} of {len(report.sources):,} files were used.")


def _repairs(repairs: dict[str, int]) -> list[str]:
    return [f"{count:,} x {kind.replace('_', ' ')}" for kind, count in repairs.items()]


def hta(report: ClusterReport) -> list[tuple[str, Table | None, str]]:
    """HTA's own numbers: analysis, a table where they form one, else their text."""
    found: list[tuple[str, Table | None, str]] = []
    for index, (analysis, by_rank) in enumerate(report.hta.items()):
        title = words.one_line(str(analysis).replace("_", " "), 80)
        records = _records(by_rank)
        if records is None:
            found.append((title, None, words.elide(words.clean(str(by_rank)), 4000)))
            continue
        names = list(dict.fromkeys(name for _, record in records for name in record))[:16]
        rows = [
            Row([Cell(words.one_line(rank, 20), float(rank) if rank.isascii() and rank.isdecimal() else rank)]
                + [_any(record.get(name)) for name in names])
            for rank, record in records[:_MAX_HTA_ROWS]
        ]  # fmt: skip
        numeric = [all(not isinstance(record.get(name), str) for _, record in records) for name in names]
        heads = [Column("Rank", numeric=True)]
        heads += [
            Column(words.one_line(name.replace("_", " "), 48), numeric=n)
            for name, n in zip(names, numeric, strict=True)
        ]
        hidden = len(records) - len(rows)
        note = f"{hidden:,} more rows are in report.json." if hidden else ""
        found.append((title, Table(f"hta-{index}", heads, rows, note), ""))
    return found


def _records(by_rank: Any) -> list[tuple[str, dict[str, Any]]] | None:
    """Flatten ``rank -> numbers`` or ``rank -> list of numbers``; None when it has another shape."""
    if not isinstance(by_rank, dict):
        return None
    records: list[tuple[str, dict[str, Any]]] = []
    for rank, value in by_rank.items():
        items = value if isinstance(value, list) else [value if isinstance(value, dict) else {"value": value}]
        for item in items:
            if not isinstance(item, dict) or any(isinstance(part, (dict, list)) for part in item.values()):
                return None
            records.append((str(rank), {str(key): part for key, part in item.items()}))
    return records or None


def _any(value: Any) -> Cell:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return _text(value, 70)
    return Cell(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}", value)
