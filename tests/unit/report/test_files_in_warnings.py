"""Warnings name the files that were not used, once each."""

from __future__ import annotations

from rankscope.records.report import ClusterReport, SourceFile
from rankscope.records.rows import RankSummary
from rankscope.report.common.summary import warnings


def test_files_are_named_with_their_reasons(cpu_balanced: ClusterReport) -> None:
    report = cpu_balanced
    report.ranks = [RankSummary(rank=9, status="corrupt", reason="rank_9.json: empty")]
    report.sources = [
        SourceFile(path="/t/rank_9.json", status="unusable", rank=9, reason="rank_9.json: empty"),
        SourceFile(path="/t/again.json", status="unusable", rank=3, reason="the same recording as rank_3.json"),
        SourceFile(path="/t/a.columns", status="unusable", reason="/t/a.columns: not a whole object"),
        SourceFile(path="/t/rank_4.json", status="used", rank=4, repairs={"dropped: negative duration": 37}),
    ]
    text = warnings(report)
    assert text[0] == "rank 9 left an unusable trace (rank_9.json: empty)"
    assert text[1] == (
        "2 files could not be used (again.json: the same recording as rank_3.json; /t/a.columns: not a whole object)"
    )
    assert text[2] == "1 trace was repaired while reading (rank 4: 37 x dropped: negative duration)"
