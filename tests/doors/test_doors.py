"""For each door the ranks are recorded, the late rank is named, and the job is as without rankscope.

What stands in the table of docs/compatibility.md is a test here: door by door, column by column.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from doors.doors import DOORS, Door
from doors.launches import ENDS_WITHIN_S, Launches
from support.ending import ending, runs
from support.launching import must_tell
from support.node import until

pytestmark = [pytest.mark.doors, pytest.mark.timeout(850)]


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
    report = launches.report()
    must_tell(report, "straggler", [1], report.verdict.cause)


def test_training_is_the_same_to_the_last_bit(launches: Launches) -> None:
    assert launches.left(recorded=True) == launches.left(recorded=False)


# What `exec` does with exit codes and signals is in tests/unit/launcher/test_exec.py as well; of `run`, in tests/harm.
@pytest.mark.long
def test_a_failing_rank_ends_the_job_with_the_same_exit_code(launches: Launches) -> None:
    bare, ours = launches.code("fail", False), launches.code("fail", True)
    assert bare in launches.door.failing, launches.said("fail", False)
    assert ours in launches.door.failing, launches.said("fail", True)


@pytest.mark.long
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
