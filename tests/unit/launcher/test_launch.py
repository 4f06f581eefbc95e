"""The promise: errors of rankscope change neither whether the job runs nor how it ends."""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.config import AnalysisConfig, RunConfig, ToolConfig
from rankscope.errors import RunDirError
from rankscope.launcher.ending import Ending
from rankscope.launcher.run import launch as launching
from rankscope.launcher.run.arguments import parse
from rankscope.launcher.run.launch import launch
from rankscope.launcher.wrap_up import Outcome
from rankscope.records.codec import to_json
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, RunInfo, Verdict
from rankscope.records.running.node_task import HelperMessage, JobEnd
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


CLUSTER = ClusterReport(
    run=RunInfo(source="run"),
    ranks=[],
    clock=ClockReport(method="none"),
    collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
    verdict=Verdict(kind="balanced", confidence="low", sentence="s"),
)


def launched(said: list[str], config: ToolConfig | None = None) -> Outcome:
    return launch(parse(["train.py"]), config or ToolConfig(), plain={}, argv=["rankscope", "run"], say=said.append)


def test_a_run_that_goes_well(helper: Any, job: Job) -> None:
    helper.words[2:2] = [HelperMessage(kind="begun"), HelperMessage(kind="report", text=to_json(CLUSTER))]
    said: list[str] = []
    outcome = launched(said)
    assert outcome == Outcome(Ending(0), report=CLUSTER, folder=Path("/runs/run_0001/report"))
    assert helper.finished == JobEnd(exit_code=0)
    assert job.spec == str(helper.spool.spec)
    assert ENV_SPEC not in os.environ
    assert said[0].startswith("steps 13 to 18 of every rank will be recorded")
    assert said[1:] == ["analysing"]


def test_a_node_that_is_not_the_head_only_gathers(helper: Any, job: Job) -> None:
    helper.words[1] = HelperMessage(kind="manifest", text="by the node of rank 0")
    assert launched([]) == Outcome(Ending(0))


def test_runs_plainly_when_our_setup_fails(helper: Any, job: Job) -> None:
    helper.start_error = OSError("no processes left")
    job.ending = Ending(1)
    said: list[str] = []
    assert launched(said) == Outcome(Ending(1))
    assert (job.ran, job.spec, helper.finished) == (1, None, None)
    assert said == ["not recording, the job runs without rankscope: OSError: no processes left"]


def test_runs_plainly_where_the_default_folder_cannot_be_made(helper: Any, job: Job) -> None:
    helper.answer = HelperMessage(kind="refused", text="cannot create rankscope_runs")
    said: list[str] = []
    assert launched(said) == Outcome(Ending(0))
    assert (job.ran, helper.ended) == (1, True)
    assert said[0].startswith("not recording")


def test_refuses_a_run_dir_that_is_taken_before_the_job_starts(helper: Any, job: Job, tmp_path: Path) -> None:
    helper.answer = HelperMessage(kind="refused", text="taken by run 'other'")
    with pytest.raises(RunDirError, match="taken by run 'other'"):
        launched([], ToolConfig(run=RunConfig(dir=str(tmp_path / "mine"))))
    assert (job.ran, helper.ended) == (0, True)


def test_a_run_dir_that_does_not_answer_keeps_no_job_from_starting(helper: Any, job: Job, tmp_path: Path) -> None:
    helper.answer = None
    said: list[str] = []
    assert launched(said, ToolConfig(run=RunConfig(dir=str(tmp_path / "mine")))) == Outcome(Ending(0))
    assert job.ran == 1
    assert "does not answer" in said[0]
    assert str(helper.spool.path) in said[0]


@pytest.mark.parametrize("error", [RuntimeError("disk\nfull"), KeyError("x"), SystemExit(9)])
def test_a_failing_end_keeps_exit_code_and_spool(helper: Any, job: Job, error: BaseException) -> None:
    helper.finish_error = error
    job.ending = Ending(1)
    said: list[str] = []
    assert launched(said) == Outcome(Ending(1))
    assert helper.spool.path.exists()
    assert "\n" not in said[-1]
    assert type(error).__name__ in said[-1]


def test_only_what_was_left_is_reported(helper: Any, job: Job) -> None:
    helper.words[0] = HelperMessage(kind="gathered", text="No space left on device: 2 file(s) stay in /tmp/x")
    said: list[str] = []
    launched(said, ToolConfig(analysis=AnalysisConfig(enabled=False)))
    assert "No space left on device: 2 file(s) stay in /tmp/x" in said[1]
    assert "what was recorded is in" not in said[2]


def test_a_report_that_failed_is_reported(helper: Any, job: Job) -> None:
    helper.words[2:2] = [
        HelperMessage(kind="begun"),
        HelperMessage(kind="lacking", text="no report: no rank left a trace"),
    ]
    said: list[str] = []
    assert launched(said) == Outcome(Ending(0))
    assert said[-1] == "no report: no rank left a trace"


def test_analysis_can_be_switched_off(helper: Any, job: Job) -> None:
    said: list[str] = []
    assert launched(said, ToolConfig(analysis=AnalysisConfig(enabled=False))) == Outcome(Ending(0))
    assert helper.task.report is False
    assert "rankscope analyze /runs/run_0001" in said[-1]


def test_runs_plainly_where_the_current_folder_is_gone(helper: Any, job: Job, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    for config in (ToolConfig(), ToolConfig(run=RunConfig(dir="relative"))):
        said: list[str] = []
        assert launched(said, config) == Outcome(Ending(0))
        assert said[0].startswith("not recording, the job runs without rankscope: FileNotFoundError")
    assert job.ran == 2


def test_after_a_signal_a_report_is_waited_for_as_long_as_a_rank_may_take_to_end(
    helper: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(10**6))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    helper.words = [HelperMessage(kind="gathered"), HelperMessage(kind="begun")] + [
        HelperMessage(kind="stage", text="still at work")
    ] * 100
    job.ending = Ending(1, signal=signal.SIGTERM)
    said: list[str] = []
    assert launched(said) == Outcome(job.ending)
    assert "goes on with the report" in said[-1]
    assert len(helper.words) > 80


def test_after_a_signal_the_launcher_leaves_a_helper_that_moves_nothing(
    helper: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 1000, 2))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    helper.words = [None] * 100
    job.ending = Ending(1, signal=signal.SIGTERM)
    said: list[str] = []
    assert launched(said) == Outcome(job.ending)
    assert "stopped by SIGTERM: process 1 goes on with gathering" in said[-1]
    assert not helper.ended
    assert len(helper.words) > 90


def test_a_helper_that_hangs_is_left_after_the_time_that_gathering_may_take(
    helper: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 1000, 2))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    helper.words = [None] * 400
    said: list[str] = []
    assert launched(said) == Outcome(Ending(0))
    assert "/runs/run_0001 did not answer within gather.timeout_s=120 s" in said[-1]
    assert helper.ended
