"""Size limits of the page; parts left out are made by its script (test_browser.py opens it)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rankscope.records.report import ClusterReport
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Cell, Column, Row, Table
from rankscope.report.formats import html
from rankscope.report.formats.page_tables import as_data, sorted_by

COLUMNS = [Column("Rank", numeric=True), Column("Name"), Column("Time", numeric=True)]


def many(report: ClusterReport, ranks: int) -> ClusterReport:
    """Return a report that has every section with so many ranks, and HTA's numbers of eight kernels a rank."""
    report.ranks = [replace(report.ranks[n % 2], rank=n) for n in range(ranks)]
    report.steps = [replace(row, rank=n) for n in range(ranks) for row in report.steps[:6]]
    kernel = {f"time of the kernel {name}": 1234.5678 for name in ("sum", "max", "min", "mean", "stddev")}
    rows = [{"name": f"a_kernel_with_the_long_name_that_kernels_have_{k}", **kernel} for k in range(8)]
    report.hta = {name: {str(n): rows for n in range(min(ranks, 64))} for name in ("kernels", "counts", "queues")}
    return report


@pytest.mark.parametrize(("ranks", "kilobytes"), [(2, 175), (64, 400), (1024, 2000)])
def test_a_page_can_be_sent_by_mail(ranks: int, kilobytes: int, gpu_straggler: ClusterReport) -> None:
    assert len(html.render(many(gpu_straggler, ranks)).encode()) < kilobytes * 1000


def test_rows_as_data_say_each_text_once() -> None:
    rows = [
        Row([Cell("0"), Cell("aten::mm"), Cell("1.50")]),
        Row([Cell("1"), Cell("aten::mm"), Cell("2.50")], "rank-1"),
    ]
    found = as_data(Table("times", COLUMNS, rows), 0)
    assert found == {"texts": ["aten::mm"], "rows": [["0", 0, "1.50"], ["1", 0, "2.50", ["rank-1", ""]]]}
    assert as_data(Table("times", COLUMNS, rows), 1)["rows"] == [["1", 0, "2.50", ["rank-1", ""]]]
    titled = as_data(Table("times", COLUMNS, [Row([Cell("0"), Cell("mm", "", "aten::mm"), Cell(words.DASH)])]), 0)
    assert titled == {"texts": [["mm", "aten::mm"]], "rows": [["0", 0, words.DASH]]}
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("cell", "numeric", "value"),
    [
        (Cell("1,234.5", 1234.5), True, None),
        (Cell(words.DASH, ""), True, None),
        (Cell("38 ± 4", 38.2), True, "38.2"),
        (Cell("64 GiB", 2**36), True, str(2**36)),
        (Cell("7", ""), True, ""),
        (Cell("Matmul", "matmul"), False, None),
        (Cell("✓ ok", "ok"), False, "ok"),
    ],
)
def test_a_cell_is_sorted_by_what_it_says(cell: Cell, numeric: bool, value: str | None) -> None:
    assert sorted_by(cell, numeric) == value
