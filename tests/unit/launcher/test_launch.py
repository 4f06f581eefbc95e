"""The promise: our failures change neither whether the job runs nor how it ends."""

from __future__ import annotations

import os
import signal
import sys
import types
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.config import AnalysisConfig, RunConfig, ToolConfig
from rankscope.errors import AnalysisError, RunDirError
from rankscope.launcher import launch as launching
from rankscope.launcher.arguments import parse
from rankscope.launcher.launch import launch
from rankscope.launcher.torchrun import Ending
from rankscope.launcher.wrap_up import Outcome
from rankscope.records.manifest import RunManifest
from rankscope.rundir.spool import ENV_SPEC


class Job:
    """Stands for torchrun."""

    def __init__(self) -> None:
        self.ending = Ending(0)
        self.spec: str | None = None
        self.ran = 0

    def __call__(self, _: Namespace) -> Ending:
        self.ran += 1
        self.spec = os.environ.get(ENV_SPEC)
        return self.ending


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    fake = Job()
    monkeypatch.setattr(launching, "run_torchrun", fake)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield fake
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def analysis(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands for trace, analysis and report; ``error`` makes it fail."""
    seen: dict[str, Any] = {"error": None, "calls": []}

    def analyze(load: object, manifest: object, *, hta: bool, progress: object) -> str:
        seen["calls"].append((load, manifest, hta))
        if seen["error"] is not None:
            raise seen["error"]
        return "REPORT"

    def module(name: str, **members: object) -> None:
        fake = types.ModuleType(name)
        fake.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, fake)

    module("rankscope.analysis.pipeline", analyze=analyze, stages=lambda load, hta: 0)
    module("rankscope.trace.files.load", load_traces=lambda paths: paths)
    module(
        "rankscope.report",
        write_report=lambda report, folder: {},
        WRITERS={"terminal": lambda report: f"shown {report}"},
    )
    return seen


def launched(said: list[str], config: ToolConfig | None = None) -> Outcome:
    return launch(parse(["train.py"]), config or ToolConfig(), plain={}, argv=["rankscope", "run"], say=said.append)


def test_a_run_that_goes_well(helper: Any, job: Job, analysis: dict[str, Any], manifest: RunManifest) -> None:
    helper.manifest = manifest
    said: list[str] = []
    outcome = launched(said)
    run_dir = Path.cwd() / "rankscope_runs" / "run_0001"
    assert outcome == Outcome(Ending(0), summary="shown REPORT", report=run_dir / "report")
    assert analysis["calls"] == [([run_dir], manifest, True)]
    assert job.spec == str(helper.started[1].spec)
    assert ENV_SPEC not in os.environ
    assert not helper.started[1].path.exists()
    assert said[0].startswith("steps 13 to 18 of every rank will be recorded")


def test_a_node_that_is_not_the_head_only_gathers(helper: Any, job: Job, analysis: dict[str, Any]) -> None:
    assert launched([]) == Outcome(Ending(0))
    assert analysis["calls"] == []


def test_runs_plainly_when_our_setup_fails(helper: Any, job: Job) -> None:
    helper.start_error = OSError("no processes left")
    job.ending = Ending(1)
    said: list[str] = []
    assert launched(said) == Outcome(Ending(1))
    assert (job.ran, job.spec, helper.finished) == (1, None, None)
    assert said == ["not recording, the job runs without rankscope: OSError: no processes left"]


def test_runs_plainly_where_the_default_folder_cannot_be_made(helper: Any, job: Job) -> None:
    Path("rankscope_runs").write_text("a file")
    said: list[str] = []
    assert launched(said) == Outcome(Ending(0))
    assert job.ran == 1
    assert said[0].startswith("not recording")


def test_refuses_a_run_dir_that_is_taken_before_the_job_starts(helper: Any, job: Job, tmp_path: Path) -> None:
    config = ToolConfig(run=RunConfig(dir=str(tmp_path / "mine")))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{}")
    with pytest.raises(RunDirError):
        launched([], config)
    assert job.ran == 0


@pytest.mark.parametrize("error", [RuntimeError("disk\nfull"), KeyError("x"), SystemExit(9)])
def test_a_failing_gather_keeps_exit_code_and_spool(helper: Any, job: Job, error: BaseException) -> None:
    helper.finish_error = error
    job.ending = Ending(1)
    said: list[str] = []
    assert launched(said) == Outcome(Ending(1))
    assert helper.finished == 1
    assert helper.started[1].path.exists()
    assert "\n" not in said[-1]
    assert type(error).__name__ in said[-1]


@pytest.mark.parametrize("error", [AnalysisError("no rank left a trace"), ZeroDivisionError("x")])
def test_a_failing_analysis_is_told_in_a_line(
    helper: Any, job: Job, analysis: dict[str, Any], manifest: RunManifest, error: Exception
) -> None:
    helper.manifest = manifest
    analysis["error"] = error
    said: list[str] = []
    assert launched(said) == Outcome(Ending(0))
    assert str(error) in said[-1]


def test_after_a_signal_traces_are_saved_and_the_analysis_is_left_for_later(
    helper: Any, job: Job, analysis: dict[str, Any], manifest: RunManifest
) -> None:
    helper.manifest = manifest
    job.ending = Ending(1, signal=signal.SIGTERM)
    said: list[str] = []
    assert launched(said) == Outcome(job.ending)
    assert analysis["calls"] == []
    assert "rankscope analyze" in said[-1]


def test_analysis_can_be_switched_off(helper: Any, job: Job, analysis: dict[str, Any], manifest: RunManifest) -> None:
    helper.manifest = manifest
    assert launched([], ToolConfig(analysis=AnalysisConfig(enabled=False))) == Outcome(Ending(0))
    assert analysis["calls"] == []
