"""For many ranks there is a table with a row each, with the same numbers as the report."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from rankscope.records.report import ClusterReport
from rankscope.records.rows import LaunchQueue, RankIdle, RankSummary
from rankscope.report import write_report
from rankscope.report.formats.parquet import MANY


def of_ranks(report: ClusterReport, count: int) -> ClusterReport:
    report.ranks = [
        RankSummary(rank=r, host=f"node{r // 8}", idle_pct=r / 8, wait_ms_per_step=None) for r in range(count)
    ]
    report.ranks[1].step_ms = {"median": 12.5, "p95": None}
    report.idle = [RankIdle(rank=3, waiting_ms=1.25, transfer_ms=0.0, input_ms=0.0, host_ms=2.0, copy_ms=0.0)]
    report.queues = [
        LaunchQueue(rank=2, median_outstanding=4.0, max_outstanding=9, median_delay_us=5.5, starved_pct=0.0)
    ]
    return report


def test_a_row_a_rank(gpu_straggler: ClusterReport, tmp_path: Path) -> None:
    path = write_report(of_ranks(gpu_straggler, MANY + 1), tmp_path)["parquet"]
    table = pq.read_table(path)
    assert table.column("rank").to_pylist() == list(range(129))
    rows = table.to_pylist()
    assert (rows[9]["host"], rows[9]["idle_pct"], rows[9]["wait_ms_per_step"]) == ("node1", 1.125, None)
    assert (rows[1]["step_median_ms"], rows[1]["step_p95_ms"], rows[0]["step_median_ms"]) == (12.5, None, None)
    assert (rows[3]["waiting_ms"], rows[3]["host_ms"], rows[2]["waiting_ms"]) == (1.25, 2.0, None)
    assert (rows[2]["max_outstanding"], rows[2]["median_delay_us"], rows[3]["max_outstanding"]) == (9, 5.5, None)
    assert [str(table.schema.field(name).type) for name in ("rank", "host", "wait_ms_per_step")] == [
        "int64",
        "string",
        "double",
    ]


def test_of_few_ranks_there_is_none_and_an_older_one_goes(gpu_straggler: ClusterReport, tmp_path: Path) -> None:
    (tmp_path / "report.parquet").write_bytes(b"of an earlier report")
    assert "parquet" not in write_report(of_ranks(gpu_straggler, MANY), tmp_path)
    assert not (tmp_path / "report.parquet").exists()
