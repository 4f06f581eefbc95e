"""HolisticTraceAnalysis' numbers: a table of each analysis, with what it means, and a few of them for Markdown."""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

from rankscope.records.report import ClusterReport
from rankscope.report.common import plain_text
from rankscope.report.common.cells import Cell, Column, Row, Table, text

__all__ = ["MEANINGS", "Analysis", "analyses", "overview"]

MEANINGS = {
    "temporal_breakdown": "From the first kernel to the end of the last: how long the device computed, did something "
    "else (communication, copies), or was idle.",
    "comm_comp_overlap": "Share of the time of communication in which the device also computed. Nothing hides the "
    "rest.",
    "idle_time_breakdown": "Gaps between the kernels of a stream. Host wait: the next kernel was launched only after "
    "the last one had ended, so the host is late. Kernel wait: gaps under 30 µs, the price of many small kernels. "
    "Other: the kernel was launched in time and waited, for another stream for instance. The count, min, 50% and "
    "max are of gaps, in µs.",
    "kernel_type_breakdown": "Time in which kernels of each type ran, and in which several types ran at once, in µs "
    "and in % of the time in which any of them ran.",
    "kernel_breakdown": "Time of each kernel, the longest of each type; the others are summed.",
    "launch_statistics": "Launches on the host, and the work that they began on the device. Short kernels took less "
    "time than their launch: where most are short, the host limits the step. Runtime outliers are launches of over "
    "50 µs, which a full queue or an allocation causes. Launch delay outliers began over 100 µs after their launch: "
    "the device was behind, which is as it should be where the device limits the step.",
    "queue_length": "Launched work that has not begun, at each change. Where it is near zero, the device waits for "
    "the host; at 1,024 launches block, and the time in that state (µs, and as a share of the trace) is time in "
    "which the host waited for the device.",
    "memory_bandwidth": "GB/s of copies and memsets while any ran.",
    "operator_kernels": "The kernels that an ATen operator launches most often. The delays (µs) are from the "
    "operator's start to its first launch, which is time of the host, and from there to the start of that kernel.",
    "frequent_kernel_sequences": "Sequences of three or more kernels that one call of an outermost operator launches, "
    "the most frequent ones. They are what torch.compile or a fused kernel could join.",
    "user_annotation_breakdown": "Time of the job's annotations, without steps: of the work launched inside "
    "(gpu_user_annotation), and on the host (user_annotation).",
}
"""Analysis -> what its numbers mean. :mod:`rankscope.analysis.hta.table` has the same analyses."""

_SEQUENCE = "kernel_sequence"
_ARROW = " -> "
_MAX_ROWS = 400
_MAX_COLUMNS = 16


class Analysis(NamedTuple):
    """One analysis of the page."""

    title: str
    meaning: str
    """Empty for an analysis of another version."""
    table: Table | None
    """None if the numbers form no table."""
    text: str
    """The numbers, if they form no table."""


def analyses(report: ClusterReport) -> list[Analysis]:
    """Return all analyses that have numbers."""
    found = []
    for index, (name, by_rank) in enumerate(report.hta.items()):
        title, meaning = plain_text.one_line(str(name).replace("_", " "), 80), MEANINGS.get(str(name), "")
        records = _records(by_rank)
        if records is None:
            found.append(Analysis(title, meaning, None, plain_text.elide(plain_text.clean(str(by_rank)), 4000)))
        elif records:
            found.append(Analysis(title, meaning, _table(f"hta-{index}", records), ""))
    return found


def overview(report: ClusterReport) -> list[tuple[str, dict[str, float]]]:
    """Return each rank's numbers that fit one line: head of the column -> number. Ranks without any are left out."""
    ranks: dict[str, dict[str, float]] = {}
    for analysis, field, head in (
        ("temporal_breakdown", "compute_time_pctg", "Compute %"),
        ("temporal_breakdown", "non_compute_time_pctg", "Other %"),
        ("temporal_breakdown", "idle_time_pctg", "Idle %"),
        ("comm_comp_overlap", "comp_comm_overlap_pctg", "Overlap %"),
        ("launch_statistics", "launches", "Launches"),
        ("launch_statistics", "short_gpu_kernels", "Short kernels"),
        ("launch_statistics", "runtime_outliers", "Launches > 50 µs"),
        ("launch_statistics", "launch_delay_outliers", "Delays > 100 µs"),
    ):
        for rank, record in _records(report.hta.get(analysis)) or []:
            if isinstance(value := record.get(field), (int, float)) and not isinstance(value, bool):
                ranks.setdefault(rank, {})[head] = value
    return list(ranks.items())


def _table(name: str, records: list[tuple[str, dict[str, Any]]]) -> Table:
    fields = list(dict.fromkeys(field for _, record in records for field in record))[:_MAX_COLUMNS]
    rows = [
        Row([Cell(plain_text.one_line(rank, 20), float(rank) if rank.isascii() and rank.isdecimal() else rank)]
            + [_cell(field, record.get(field)) for field in fields])
        for rank, record in records[:_MAX_ROWS]
    ]  # fmt: skip
    numeric = [all(not isinstance(record.get(field), str) for _, record in records) for field in fields]
    heads = [Column("Rank", numeric=True)]
    heads += [
        Column(plain_text.one_line(field.replace("_", " "), 48), numeric=n)
        for field, n in zip(fields, numeric, strict=True)
    ]
    hidden = len(records) - len(rows)
    return Table(name, heads, rows, f"{hidden:,} more rows are in report.json." if hidden else "")


def _records(by_rank: Any) -> list[tuple[str, dict[str, Any]]] | None:
    """Flatten ``rank -> numbers`` or ``rank -> list of numbers``; None for another form."""
    if not isinstance(by_rank, dict) or not by_rank:
        return None
    records: list[tuple[str, dict[str, Any]]] = []
    for rank, value in by_rank.items():
        items = value if isinstance(value, list) else [value if isinstance(value, dict) else {"value": value}]
        for item in items:
            if not isinstance(item, dict) or any(isinstance(part, (dict, list)) for part in item.values()):
                return None
            records.append((str(rank), {str(key): part for key, part in item.items()}))
    return records


def _cell(field: str, value: Any) -> Cell:
    if field == _SEQUENCE and isinstance(value, str):
        return _sequence(value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return text(value, 70)
    return Cell(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}", value)


def _sequence(value: str) -> Cell:
    """Return a cell with the kernels of a sequence by their short names, equal ones in a row once."""
    names = [plain_text.short_name(name, 28) for name in value.split(_ARROW)]
    runs = [(name, len(list(same))) for name, same in groupby(names)]
    shown = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in runs)
    return Cell(shown, shown.lower()[:80], plain_text.one_line(value, 1000))
