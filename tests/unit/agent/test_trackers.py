"""The key numbers of a job in the trackers that its script has open."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankscope.agent.process import guard
from rankscope.agent.trackers import tensorboard
from rankscope.agent.trackers.base import Log, Tracker
from rankscope.agent.trackers.follow import TrackerLog
from rankscope.agent.trackers.table import TRACKERS
from rankscope.config import TRACKERS as NAMES
from rankscope.exporters.table import EXPORTERS

NUMBERS = {"rankscope/step_ms": 104.0, "rankscope/named_ranks": 1.0}


def test_the_names_are_those_of_the_configuration_and_of_exporters() -> None:
    assert tuple(TRACKERS) == NAMES
    assert set(TRACKERS) <= set(EXPORTERS)


class Job:
    """A job whose clock is set by hand, and whose threads run at once or when told to."""

    def __init__(self, *trackers: Tracker, numbers: Mapping[str, float] | None = NUMBERS) -> None:
        self.now, self.later, self.waits = 0.0, [], False
        self.log = TrackerLog(trackers, lambda: numbers, self.start, lambda: self.now)

    def start(self, function: Callable[[], None]) -> None:
        if self.waits:
            self.later.append(function)
        else:
            function()

    def steps(self, *seconds: float) -> None:
        for step, self.now in enumerate(seconds, 100):
            self.log.look(step)


def tracker(got: list[Any], name: str = "one", *, fails: bool = False, opened: bool = True) -> Tracker:
    def log(numbers: Mapping[str, float], step: int) -> None:
        if fails:
            raise ConnectionError("no server")
        got.append((dict(numbers), step))

    return Tracker(name, lambda: log if opened else None)


def test_every_ten_seconds_and_only_what_is_open() -> None:
    got: list[Any] = []
    Job(tracker(got), tracker(got, opened=False)).steps(1, 9.9, 10, 11, 19, 20.5, 21)
    assert got == [(NUMBERS, 102), (NUMBERS, 105)]


def test_nothing_is_logged_before_there_are_numbers() -> None:
    got: list[Any] = []
    Job(tracker(got), numbers=None).steps(10, 20)
    assert got == []


def test_a_tracker_that_fails_is_told_of_once_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_kept", [])
    got: list[Any] = []
    broken = Tracker("broken", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    Job(tracker([], "fails", fails=True), broken, tracker(got)).steps(10, 20, 30)
    assert [step for _, step in got] == [100, 101, 102]
    assert guard.kept_messages() == [
        "broken gets no numbers of the job any more: ZeroDivisionError: division by zero",
        "fails gets no numbers of the job any more: ConnectionError: no server",
    ]


def test_training_does_not_wait_for_a_tracker_that_waits() -> None:
    got: list[Any] = []
    job = Job(tracker(got))
    job.waits = True
    job.steps(10, 20, 30)
    assert len(job.later) == 1, "one at a time"
    job.later.pop()()
    job.steps(40)
    job.log.close()
    job.later.pop()()
    assert len(got) == 2
    job.steps(50)
    assert job.later == [], "the process ends"


def test_in_a_thread_of_its_own() -> None:
    done = threading.Event()
    where: list[int] = []

    def log(_numbers: Mapping[str, float], _step: int) -> None:
        where.append(threading.get_ident())
        done.set()

    now = [0.0]
    follower = TrackerLog([Tracker("one", lambda: log)], lambda: NUMBERS, clock=lambda: now[0])
    now[0] = 10.0
    follower.look(1)
    assert done.wait(60)
    assert where != [threading.get_ident()]


# ---------------------------------------------------------------- what scripts have open, as their libraries show it


def opened(name: str) -> Log | None:
    return TRACKERS[name].opened()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_imported_or_opened(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("wandb", "mlflow", "trackio", "trackio.context_vars"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(tensorboard, "_writers", [])
    assert opened(name) is None
    assert not {"wandb", "mlflow", "trackio"} & set(sys.modules)


def test_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []
    run = SimpleNamespace(log=lambda numbers, **more: got.append((numbers, more)))
    module = SimpleNamespace(run=None)
    monkeypatch.setitem(sys.modules, "wandb", module)
    assert opened("wandb") is None
    module.run = run
    log = opened("wandb")
    assert log is not None
    log(NUMBERS, 7)
    assert got == [(NUMBERS, {"commit": False})], "they join the script's own step"


def test_trackio(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []
    current: contextvars.ContextVar[Any] = contextvars.ContextVar("current_run", default=None)
    monkeypatch.setitem(sys.modules, "trackio.context_vars", SimpleNamespace(current_run=current))
    assert opened("trackio") is None
    run = SimpleNamespace(log=lambda numbers, step: got.append((numbers, step)), _next_step=0)
    current.set(run)
    log = opened("trackio")
    assert log is not None
    log(NUMBERS, 7)
    assert got == [], "the script's own steps begin with 0"
    run._next_step = 4
    log(NUMBERS, 7)
    assert got == [(NUMBERS, 3)]


def test_a_real_run_of_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio")
    run = trackio.init(project="p", name="r", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    log = opened("trackio")
    assert log is not None
    before = run._next_step
    trackio.log({"loss": 1.0})
    log(NUMBERS, 700)
    assert run._next_step == before + 1
    trackio.finish()
    assert opened("trackio") is None


def test_a_real_run_of_wandb(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)
    run = wandb.init(project="p", dir=tmp_path, mode="offline", settings=settings)
    try:
        log = opened("wandb")
        assert log is not None
        run.log({"loss": 1.0})
        log(NUMBERS, 7)
        run.log({"loss": 2.0})
        assert run.step == 2, "its steps are those of the script"
        assert dict(run.summary)["rankscope/step_ms"] == 104.0
    finally:
        run.finish()
    assert opened("wandb") is None


def test_a_real_run_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    assert opened("mlflow") is None, "none is begun"
    with mlflow.start_run() as run:
        log = opened("mlflow")
        assert log is not None
        thread = threading.Thread(target=log, args=(NUMBERS, 7))  # where no run is active
        thread.start()
        thread.join()
    (point,) = mlflow.MlflowClient().get_metric_history(run.info.run_id, "rankscope/step_ms")
    assert (point.value, point.step) == (104.0, 7)


def test_a_real_writer_of_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from torch.utils.tensorboard import SummaryWriter

    monkeypatch.setattr(SummaryWriter, "__init__", SummaryWriter.__init__)
    monkeypatch.setattr(tensorboard, "_writers", [])
    TRACKERS["tensorboard"].watch()
    SummaryWriter(str(tmp_path / "closed")).close()
    assert opened("tensorboard") is None
    with SummaryWriter(str(tmp_path / "own")):
        log = opened("tensorboard")
        assert log is not None
        log(NUMBERS, 7)
    events = accumulator.EventAccumulator(str(tmp_path / "own"))
    events.Reload()
    (event,) = events.Scalars("rankscope/step_ms")
    assert (event.value, event.step) == (104.0, 7)
