"""The location of a copy is removed from its report, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.privacy.places import with_place
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, RunInfo, Verdict
from rankscope.records.rows import RankIdle


def report(*notes: str) -> ClusterReport:
    return ClusterReport(
        run=RunInfo(source="run", notes=list(notes)),
        ranks=[],
        clock=ClockReport(method="none"),
        collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
        verdict=Verdict(kind="balanced", sentence=""),
        idle=[RankIdle(rank=0, waiting_ms=0.0, transfer_ms=0.0, input_ms=0.0, host_ms=0.0, copy_ms=1.0)],
    )


@pytest.mark.parametrize("word", ["copy", "rank", "run", "ms", "idle", "balanced"])
def test_a_folder_with_the_name_of_a_field_or_a_word_changes_nothing_else(word: str) -> None:
    before = report(f"a {word} to the device", f"{word}_0.json and {word}.txt are damaged", f"shared/{word}/x")
    assert with_place(before, Path(word), "") == before


@pytest.mark.parametrize(
    ("text", "removed", "moved"),
    [
        ("{}", ".", "s3://b/1"),
        ("{}/rank_0.json", "rank_0.json", "s3://b/1/rank_0.json"),
        (
            "cannot read {}/a.json, nor {} itself",
            "cannot read a.json, nor . itself",
            "cannot read s3://b/1/a.json, nor s3://b/1 itself",
        ),
        ("{}_2/a.json and {}.json", "{}_2/a.json and {}.json", "{}_2/a.json and {}.json"),
    ],
)
@pytest.mark.parametrize("folder", ["/tmp/a folder/copy", '/tmp/é"q\\'])
def test_a_path_is_replaced_wherever_it_is(text: str, removed: str, moved: str, folder: str) -> None:
    before = report(text.replace("{}", folder))
    for instead, expected in (("", removed), ("s3://b/1", moved)):
        assert with_place(before, Path(folder), instead).run.notes == [expected.replace("{}", folder)]


def test_a_relative_path_is_found_in_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = report("copy/a.json", f"{tmp_path}/copy/a.json")
    assert with_place(before, Path("copy"), "").run.notes == ["a.json", "a.json"]
