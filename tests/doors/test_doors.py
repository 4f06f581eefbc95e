"""Each door: the ranks are recorded, the late one is named, and the job is what it is without rankscope.

What stands in the table of docs/compatibility.md is a test here: door by door, column by column.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doors.doors import DOORS, RANKSCOPE, Door
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport
from rankscope.rundir.layout import RunDir
from support.ending import end, ending, runs
from support.launching import environment, flags_of, free_port, must_tell
from support.node import until

SETTINGS = [f"schedule.{key}" for key in ("skip_first=2", "wait=1", "warmup=1", "active=5")] + ["analysis.hta=false"]
ENDS_WITHIN_S = 800.0
"""For a test that fails, and not a measure of anything: a launch with its report has taken five minutes at load 25."""
MARK = "DOOR_LAUNCH"
"""A variable of all processes of a launch, by which those are found that a launcher has left."""
pytestmark = [pytest.mark.doors, pytest.mark.timeout(850)]


class Launches:
    """One door's launches, each made when it is first asked for."""

    def __init__(self, door: Door, folder: Path) -> None:
        self.door, self.folder = door, folder
        self._done: dict[tuple[str, bool], int | None] = {}

    def run_dir(self, mode: str) -> RunDir:
        return RunDir(self.folder / f"RUN_{mode}")

    def start(self, mode: str, recorded: bool) -> subprocess.Popen[str]:
        door, run = self.door, self.run_dir(mode).path
        ours = [*RANKSCOPE, "exec", *flags_of(f"run.dir={run}", *SETTINGS, *door.settings)] if recorded else []
        words = door.words(ours, str(self.folder / f"{mode}_{recorded}"), mode, str(free_port()))
        if door.by_run and recorded:
            words = [*RANKSCOPE, "run", *flags_of(f"run.dir={run}", *SETTINGS), *words[3:]]
        env = environment() | door.env | {MARK: str(self.folder)}
        env |= {"ATTACH_TO": str(run)} if door.attaches and recorded else {}
        with (self.folder / f"{mode}_{recorded}.log").open("w") as log:
            return subprocess.Popen(words, cwd=self.folder, env=env, stdout=log, stderr=log, text=True)

    def code(self, mode: str, recorded: bool) -> int | None:
        key = mode, recorded
        if key not in self._done:
            process = self.start(mode, recorded)
            try:
                self._done[key] = process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._done[key] = None
                self.end_all()
            finally:
                end(process)
        return self._done[key]

    def end_all(self) -> None:
        """Whatever still runs of these launches, whoever its parent is."""
        mark = f"{MARK}={self.folder}".encode()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in environ.read_bytes().split(b"\0"):
                    os.kill(int(environ.parent.name), signal.SIGKILL)

    def said(self, mode: str, recorded: bool) -> str:
        return (self.folder / f"{mode}_{recorded}.log").read_text(errors="replace")[-6000:]

    def manifest(self, mode: str = "ok") -> RunManifest:
        assert self.code(mode, True) is not None
        run = self.run_dir(mode)
        until(run.manifest.exists, ENDS_WITHIN_S)
        return from_json(RunManifest, run.manifest.read_bytes())


def _params() -> list[object]:
    """Columns of a row share its launches, in one process."""
    longer = {True: [], False: [pytest.mark.long]}
    return [pytest.param(d, id=d.name, marks=[pytest.mark.xdist_group(d.name), *longer[d.quick]]) for d in DOORS]


@pytest.fixture(scope="module", params=_params())
def launches(request, tmp_path_factory) -> Iterator[Launches]:
    door: Door = request.param
    why = door.missing()
    if why is not None:
        pytest.skip(why)
    launches = Launches(door, tmp_path_factory.mktemp("door"))
    yield launches
    launches.end_all()


def test_armed(launches: Launches) -> None:
    assert launches.code("ok", True) == 0, launches.said("ok", True)
    assert sorted((life.rank, life.world_size) for life in launches.manifest().lives) == [(0, 2), (1, 2)]


def test_window_on_all_ranks_with_the_right_steps(launches: Launches) -> None:
    (window,) = launches.manifest().windows
    # skipped 2, waited 1, warmed up 1: steps 4 to 8
    assert [(r.rank, r.status, r.first_step, r.last_step, r.step_source) for r in window.records] == [
        (rank, "ok", 4, 8, "optimizer") for rank in (0, 1)
    ]


def test_the_late_rank_is_named(launches: Launches) -> None:
    launches.manifest()
    path = launches.run_dir("ok").report / "report.json"
    until(path.exists, ENDS_WITHIN_S)
    report = from_json(ClusterReport, path.read_bytes())
    must_tell(report, "straggler", [1], report.verdict.cause)


def test_training_is_the_same_to_the_last_bit(launches: Launches) -> None:
    assert launches.code("ok", False) == 0, launches.said("ok", False)
    assert launches.code("ok", True) == 0
    for rank in (0, 1):
        bare, ours = ((launches.folder / f"ok_{recorded}.{rank}").read_text() for recorded in (False, True))
        assert bare == ours


def test_a_failing_rank_ends_the_job_with_the_same_exit_code(launches: Launches) -> None:
    bare, ours = launches.code("fail", False), launches.code("fail", True)
    assert bare in launches.door.failing, launches.said("fail", False)
    assert ours in launches.door.failing, launches.said("fail", True)


def test_sigterm_ends_it_alike(launches: Launches) -> None:
    codes = {}
    for recorded in (False, True):
        begun = [launches.folder / f"term_{recorded}.begun.{rank}" for rank in (0, 1)]
        with ending(launches.start("term", recorded)) as process:
            here = lambda p=process, b=begun: p.poll() is not None or all(f.exists() and f.read_text() for f in b)  # noqa: E731
            until(here, ENDS_WITHIN_S)
            assert process.poll() is None, launches.said("term", recorded)
            process.send_signal(signal.SIGTERM)
            codes[recorded] = process.wait(ENDS_WITHIN_S)
        pids = [int(f.read_text()) for f in begun]
        if launches.door.orphans:
            (launches.folder / f"term_{recorded}.over").touch()
        until(lambda p=pids: not any(runs(pid) for pid in p), ENDS_WITHIN_S)
    if launches.door.stopped:
        assert set(codes.values()) <= set(launches.door.stopped)
    else:
        assert codes[True] == codes[False]
