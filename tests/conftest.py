"""Fixtures for real launches: the command in a separate process, gloo ranks on loopback, and the files that it left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.rundir.layout import RunDir
from support.ending import end, holders, told
from support.forking.client import Forked, may_be_forked
from support.launching import JOBS, LIMIT_S, RANKSCOPE, TORCHRUN, Launched, environment, flags_of

HERE = Path(__file__).parent
FORKED = (["-m", "rankscope"], ["-m", "torch.distributed.run"])


def pytest_collection_modifyitems(items):
    """The folder says what a test needs."""
    for item in items:
        for folder in ("dist", "gpu"):
            if HERE / folder in item.path.parents:
                item.add_marker(folder)


def pytest_terminal_summary(terminalreporter):
    """Why what passed in the end had failed before: it may be a fault of ours that comes seldom."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed, and tried again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(autouse=True, scope="session")
def _cache_of_its_own(tmp_path_factory):
    """What is kept of traces goes with the tests."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory):
    """The address of a process that has loaded torch and forks launchers and ranks (support.forking)."""
    address = tmp_path_factory.mktemp("forking") / "socket"
    command = [sys.executable, "-u", "-m", "support.forking.server", str(address)]
    with subprocess.Popen(
        command, cwd=HERE, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout.readline() == "ready\n"
            yield str(address)
        finally:
            end(server)


@pytest.fixture
def start(request, tmp_path):
    """Start a command without waiting; it is killed when the test ends.

    Tests marked ``forked`` spare its imports and those of its ranks, those marked ``forked_launcher`` the former.
    A variable of ``extra_env`` that is None is taken out of the environment.
    """
    running = []
    ranks = request.node.get_closest_marker("forked") is not None
    forked = ranks or request.node.get_closest_marker("forked_launcher") is not None

    def start(command, extra_env=None, cwd=tmp_path) -> subprocess.Popen[str]:
        words, env = [str(word) for word in command], {**environment(), **(extra_env or {})}
        env = {key: value for key, value in env.items() if value is not None}
        more = {"cwd": cwd, "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        known = forked and words[0] == sys.executable and words[1:3] in FORKED
        if known and may_be_forked(env, environment(), ranks=ranks):
            process = Forked(words, server=request.getfixturevalue("fork_server"), ranks=ranks, **more)
        else:
            process = subprocess.Popen(words, text=True, **more)
        running.append(process)
        return process

    yield start
    for process in running:
        end(process)


@pytest.fixture
def finish(tmp_path):
    """Wait for a started command and collect what it left."""

    def finish(process: subprocess.Popen[str], run: Path | None = None) -> Launched:
        try:
            stdout, stderr = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            left = told([process.pid, *holders([process.stdout, process.stderr])])
            end(process)
            pytest.fail(f"{process.args} did not end within {LIMIT_S} s\n{left}")
        return Launched(process.returncode, stdout, stderr, RunDir(run or tmp_path / "RUN"))

    return finish


@pytest.fixture
def run(start, finish, tmp_path):
    """``rankscope run`` over one of the jobs, into ``tmp_path / "RUN"``, with a short schedule.

    Its report is made where a test asks for it, by default without the breakdowns of HolisticTraceAnalysis.
    """

    def run(job, *job_args, ranks=2, flags=(), steps="skip_first=3", extra_env=None, report=False, hta=False):
        wanted = "analysis.enabled=false" if not report else f"analysis.hta={str(hta).lower()}"
        ours = flags_of(f"run.dir={tmp_path / 'RUN'}", wanted, *(f"schedule.{key}" for key in steps.split()))
        return finish(start([*RANKSCOPE, "--nproc-per-node", ranks, *flags, *ours, JOBS / job, *job_args], extra_env))

    return run


@pytest.fixture
def torchrun(start, finish):
    """The same job under torchrun alone."""

    def torchrun(job, *job_args, ranks=2, flags=()) -> Launched:
        return finish(start([*TORCHRUN, "--nproc-per-node", ranks, *flags, JOBS / job, *job_args]))

    return torchrun
