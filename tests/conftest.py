"""Real launches: the command in a process of its own, gloo ranks on loopback, and what it left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rankscope.rundir.layout import RunDir
from support.launching import JOBS, RANKSCOPE, TORCHRUN, Launched, environment, flags_of

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """The folder says what a test needs."""
    for item in items:
        for folder in ("dist", "gpu"):
            if HERE / folder in item.path.parents:
                item.add_marker(folder)


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


@pytest.fixture
def start(tmp_path):
    """Start a command without waiting; it is killed when the test ends."""
    running = []

    def start(command, extra_env=None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(word) for word in command], cwd=tmp_path, env={**environment(), **(extra_env or {})}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture
def finish(tmp_path):
    """Wait for a started command and collect what it left."""

    def finish(process: subprocess.Popen[str], run: Path | None = None) -> Launched:
        stdout, stderr = process.communicate(timeout=200)
        return Launched(process.returncode, stdout, stderr, RunDir(run or tmp_path / "RUN"))

    return finish


@pytest.fixture
def run(start, finish, tmp_path):
    """``rankscope run`` over one of the jobs, into ``tmp_path / "RUN"``, with a short schedule."""

    def run(job, *job_args, ranks=2, flags=(), steps="skip_first=3", extra_env=None) -> Launched:
        ours = flags_of(f"run.dir={tmp_path / 'RUN'}", *(f"schedule.{key}" for key in steps.split()))
        return finish(start([*RANKSCOPE, "--nproc-per-node", ranks, *flags, *ours, JOBS / job, *job_args], extra_env))

    return run


@pytest.fixture
def torchrun(start, finish):
    """The same job under torchrun alone."""

    def torchrun(job, *job_args, ranks=2, flags=()) -> Launched:
        return finish(start([*TORCHRUN, "--nproc-per-node", ranks, *flags, JOBS / job, *job_args]))

    return torchrun
