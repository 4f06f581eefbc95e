"""Runs in a folder are listed, shown and pruned; running ones and foreign files are not changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rankscope import cli
from rankscope.errors import RunDirError
from rankscope.rundir.layout import RunDir
from rankscope.rundir.runs import Run, find_runs, remove

DATA = Path(__file__).parents[1] / "data" / "runs" / "ddp_input"
TRACE = b"t" * 2_000_000


def make(folder: Path, number: int, *, report: str | None, finished: bool = True) -> RunDir:
    run = RunDir(folder / f"run_{number:04d}")
    run.nodes.mkdir(parents=True)
    run.launch.write_text("{}")
    window = run.window(0, 0)
    window.mkdir(parents=True)
    run.trace(0, 0, 0).write_bytes(TRACE)
    run.trace(0, 0, 0).with_name("rank_00000.parquet").write_bytes(b"c" * 500_000)
    run.record(0, 0, 0).write_text("{}")
    (window / "mine.trace.json.gz").write_bytes(b"of the user")
    if finished:
        shutil.copy(DATA / "run.json", run.manifest)
        os.utime(run.manifest, (1_700_000_000 + number, 1_700_000_000 + number))
    if report is not None:
        run.report.mkdir()
        shutil.copy(report, run.report / "report.json")
    return run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    output, run = tmp_path_factory.mktemp("report"), tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(DATA, run)  # what is exported is noted in the run
    assert cli.main(["analyze", str(run), "--format", "markdown", "--output", str(output)]) == 0
    return str(output / "report.json")


@pytest.fixture
def runs(tmp_path: Path, report: str) -> list[RunDir]:
    """Two that are finished with a report, one without, the latest that is finished, and one that is not."""
    (tmp_path / "no_run").mkdir()
    return [
        make(tmp_path, 1, report=report),
        make(tmp_path, 2, report=None),
        make(tmp_path, 3, report=report),
        make(tmp_path, 4, report=report),
        make(tmp_path, 5, report=None, finished=False),
    ]


def mine_in(run: RunDir) -> Path:
    return run.window(0, 0) / "mine.trace.json.gz"


def without_mine(*runs: RunDir) -> None:
    for run in runs:
        mine_in(run).unlink()


def traces(runs: list[RunDir]) -> list[bool]:
    return [run.trace(0, 0, 0).exists() for run in runs]


def test_the_list_has_a_line_for_each_run(
    runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(["runs", "list", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"run_{n:04d}" for n in range(1, 6)]
    assert all(len(line) <= 100 for line in lines)
    assert lines[1].endswith("no report")
    assert lines[4].endswith("running, or it was killed")
    assert "2.5 MB" in lines[4]
    assert cli.main(["runs", "show", str(runs[0].path)]) == 0
    shown = capsys.readouterr().out
    assert "of which 2.5 MB can be pruned" in shown
    assert "2 ranks" in shown


def test_names_change_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(tmp_path, 1, report=None)
    without_mine(run)
    run.path.rename(tmp_path / "a\x1b[31mred\nline")
    for words in (["list"], ["prune", "--keep", "0", "--whole"]):
        assert cli.main(["runs", words[0], str(tmp_path), *words[1:]]) == 0
        assert "a\\x1b[31mred\\nline  " in capsys.readouterr().out.splitlines()[0]


def test_nothing_goes_without_yes(runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "1"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "2 run(s), 5.0 MB would be free; add --yes to remove them"
    assert traces(runs) == [True] * 5


def test_traces_go_and_answers_stay(runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "1", "--yes"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == "2 run(s), 5.0 MB freed"
    assert "run_0002 stays: it has no report yet" in told.err
    # the latest finished one is kept, and nobody knows whether the last one is running
    assert traces(runs) == [False, True, False, True, True]
    left = {path.relative_to(runs[0].path).as_posix() for path in runs[0].path.rglob("*") if path.is_file()}
    assert left == {
        "run.json", "nodes/launch.json", "report/report.json", "audit.jsonl",
        "attempt_0/window_000/rank_00000.json", "attempt_0/window_000/mine.trace.json.gz",
    }  # fmt: skip
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "1", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 run(s), 0.0 MB freed"


def test_whole_runs_go_where_that_is_asked_for(runs: list[RunDir], tmp_path: Path) -> None:
    without_mine(*runs)
    for name in ("attempt_1/pulse/rank_00012.bin.gz", "attempt_0/window_000/columns/a.columns", "live/a.json",
                 "attempt_0/rank_00000.oom.memory.pickle", "nodes/a.claim.json.age", "stuck/question",
                 "columns/b.columns",
                 "report/report.html", "report/cluster.trace.json.gz", "audit.b.jsonl", "report/.nfs0001"):  # fmt: skip
        (runs[0].path / name).parent.mkdir(parents=True, exist_ok=True)
        (runs[0].path / name).touch()
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "2", "--whole", "--yes"]) == 0
    assert [run.path.exists() for run in runs] == [False, False, True, True, True]
    assert (tmp_path / "no_run").exists()


def test_a_run_with_files_of_the_user_is_not_removed(
    runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_mine(runs[0], runs[1])
    (runs[0].path / "checkpoint.pt").write_bytes(b"weights")
    (runs[1].path / "audit.jsonl").write_text("{}\n")
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "1", "--whole", "--yes"]) == 0
    assert [run.path.exists() for run in runs] == [True, False, True, True, True]
    said = " ".join(capsys.readouterr().err.split())
    assert "rankscope did not write all that is in it (checkpoint.pt)" in said
    # runs[2]: however deep it lies, and whatever its name ends with
    assert "rankscope did not write all that is in it (attempt_0/window_000/mine.trace.json.gz)" in said
    assert mine_in(runs[2]).read_bytes() == b"of the user"


def test_the_list_as_json(runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs[1].manifest.write_text("[]")
    os.utime(runs[1].manifest, (1_700_000_002, 1_700_000_002))
    assert cli.main(["runs", "list", str(tmp_path), "--format", "json"]) == 0
    rows = {Path(row["path"]).name: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [f"run_000{n}" for n in (1, 2, 3, 4, 5)]
    first, last = rows["run_0001"], rows["run_0005"]
    assert (first["finished"], first["time"], first["prunable_bytes"]) == (True, 1_700_000_001, 2_500_000)
    assert first["bytes"] > 2_500_000
    assert first["verdict"]
    assert (last["finished"], last["verdict"], last["ranks"]) == (False, None, None)
    assert cli.main(["runs", "list", str(tmp_path)]) == 0
    assert "its run.json cannot be read" in capsys.readouterr().out


def test_what_ended_lately_stays(runs: list[RunDir], tmp_path: Path) -> None:
    os.utime(runs[2].manifest)
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "0", "--older-than", "1", "--yes"]) == 0
    assert traces(runs) == [False, True, True, False, True]


def test_a_removal_that_was_interrupted_goes_on(
    runs: list[RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_mine(*runs)
    whole, gone = shutil.rmtree, []

    def interrupted(path: Path, **more: Any) -> None:
        if gone:
            raise OSError("interrupted")
        gone.append(path)
        whole(path, **more)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(RunDirError, match="interrupted"):
        remove(Run(runs[0]), whole=True)
    monkeypatch.undo()
    assert (len(gone), Run(runs[0]).finished) == (1, True)
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "3", "--whole", "--yes"]) == 0
    assert not runs[0].path.exists()


def test_a_run_that_is_being_removed_or_cannot_be_read_hides_no_other(
    runs: list[RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = find_runs(tmp_path)
    shutil.rmtree(runs[0].path)
    assert [run.size > 0 for run in found] == [False, True, True, True, True]
    assert Run(runs[0]).time == 0.0
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if path.parent == runs[1].path:
            raise PermissionError(13, "Permission denied")
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    assert cli.main(["runs", "list", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == ["run_0003", "run_0004", "run_0005"]
    assert "run_0002 is left out: it cannot be read (Permission denied)" in " ".join(told.err.split())


def test_links_are_not_followed(runs: list[RunDir], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(runs[0].window(0, 0), elsewhere)
    runs[0].window(0, 0).symlink_to(elsewhere)
    (tmp_path / "alias").symlink_to(runs[2].path)
    assert "alias" not in [run.name for run in find_runs(tmp_path)]
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "0", "--yes"]) == 0
    assert (elsewhere / "rank_00000.trace.json.gz").exists()


def test_what_is_not_finished_is_never_removed(runs: list[RunDir], tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="no finished run"):
        remove(Run(runs[4]), whole=True)
    with pytest.raises(RunDirError, match="cannot be read"):
        find_runs(tmp_path / "nothing")
    assert cli.main(["runs", "list", str(tmp_path / "no_run")]) == RunDirError.exit_code
    assert cli.main(["runs", "prune", str(tmp_path), "--keep", "-1"]) == 2


def test_a_folder_of_runs_is_not_analysed_as_one_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        launch = RunDir(tmp_path / f"run_{number}").launch
        launch.parent.mkdir(parents=True)
        launch.write_text("{}")
        os.utime(launch, (number, number))
    for verb in ("analyze", "merge", "report", "view", "status"):
        assert cli.main([verb, str(tmp_path)]) == 3
        assert capsys.readouterr().err.endswith(f"name one of them: {tmp_path / 'run_2'} is the latest\n")
