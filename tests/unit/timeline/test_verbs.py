"""``rankscope merge`` and ``rankscope view``."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankscope import cli
from rankscope.records.codec import from_json
from rankscope.records.report import ClusterReport
from rankscope.report import write_report


@pytest.fixture
def run(tmp_path: Path, write_rank: Any) -> Path:
    """A run directory with a report."""
    folder = tmp_path / "run"
    window = folder / "attempt_0" / "window_000"
    window.mkdir(parents=True)
    for rank in range(2):
        path = write_rank(rank, [(100 + 30 * rank, 160), (300 + 30 * rank, 360)])
        shutil.move(path, window / f"rank_{rank:05d}.trace.json")
    manifest = {
        "run_id": "r", "argv": [], "config": {}, "versions": {}, "hosts": ["h"], "world_size": 2, "attempts": 1,
        "exit_code": 0, "windows": [], "lives": [],
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(manifest))
    assert cli.main(["analyze", str(folder), "--no-hta", "--output", str(folder / "report"), "--format", "json"]) == 0
    return folder


def test_merge_writes_beside_the_report_and_links_it(
    run: Path, strict: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page = run / "report" / "report.html"
    own = run / "report" / "cluster.trace.json.gz"
    assert own.name not in page.read_text()
    capsys.readouterr()
    assert cli.main(["merge", str(run)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{own}\n"
    assert "slices" in captured.err
    assert [s.length for s in strict(own).of("wait")] == [30_000, 30_000]
    assert f'href="{own.name}"' in page.read_text()
    assert cli.main(["merge", str(run), "--steps", "6"]) == 0  # its own file may be written again
    assert len(strict(own).of("wait")) == 1
    report = from_json(ClusterReport, (run / "report" / "report.json").read_bytes())
    write_report(report, run / "report")
    assert f'href="{own.name}"' in page.read_text()


def test_a_merged_timeline_is_no_trace_of_a_rank(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["merge", str(run)]) == 0
    capsys.readouterr()
    assert cli.main(["analyze", str(run), "--no-hta", "--format", "json"]) == 0
    sources = json.loads(capsys.readouterr().out)["sources"]
    assert [s["status"] for s in sources] == ["used", "used"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--steps", "x"], 2, "--steps x"),
        (["--steps", "99"], 2, "there are 5 to 6"),
        (["--ranks", "5"], 2, "there are 0, 1"),
        (["--categories", "kernels"], 2, "kernels is unknown"),
        (["--max-mb", "0"], 2, "--max-mb 0"),
        (["--output", "{run}/run.json"], 2, "rank's trace"),
        (["--output", "{run}/../taken.json"], 3, "not overwritten"),
    ],
)
def test_a_mistake_of_merge(
    words: list[str], code: int, said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.parent / "taken.json").touch()
    capsys.readouterr()
    assert cli.main(["merge", str(run), *(word.format(run=run) for word in words)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err.splitlines()[-1]
    assert not list(run.rglob("cluster*"))


def test_foreign_traces_need_an_output(write_rank: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        folder = write_rank(rank, [(100, 160)]).parent
    assert cli.main(["merge", str(folder)]) == 2
    assert "--output" in capsys.readouterr().err
    assert cli.main(["merge", str(folder), "--output", str(tmp_path / "m.json.gz")]) == 0
    assert cli.main(["merge", str(tmp_path / "m.json.gz")]) == 2


def test_view_without_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["view", str(tmp_path)]) == 3
    assert "is empty" in capsys.readouterr().err
    (tmp_path / "rank_0.json").touch()
    assert cli.main(["view", str(tmp_path)]) == 3
    assert "rankscope analyze" in capsys.readouterr().err


def test_view_serves_until_it_is_interrupted(run: Path) -> None:
    words = [sys.executable, "-m", "rankscope", "view", str(run), "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )  # fmt: skip
    try:
        assert process.stdout is not None
        label, _, url = process.stdout.readline().strip().partition(":")
        assert label == "report"
        host, _, path = url.strip().removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=120)
        connection.request("GET", "/" + path)
        assert connection.getresponse().read() == (run / "report" / "report.html").read_bytes()
        connection.close()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    assert process.returncode == 0
    assert "Traceback" not in told
    assert "rankscope merge" in told
