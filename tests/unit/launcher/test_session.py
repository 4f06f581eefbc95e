"""The surroundings of the job, and their removal."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rankscope.config import ToolConfig
from rankscope.launcher.job import begin
from rankscope.launcher.run_plan import RunPlan
from rankscope.records.codec import from_json
from rankscope.records.spec import AgentSpec
from rankscope.rundir.spool import ENV_PYTHONPATH, ENV_SPEC

PLAN = RunPlan(run_id="job", run_dir=None, node=None, launch="launch 1", alone=True)


def test_writes_spec_and_task_into_a_private_spool_and_starts_the_helper(helper: Any) -> None:
    words = ["rankscope", "run", "x", "--api-key", "s3cr3t"]
    session = begin(PLAN, ToolConfig(), argv=words, plain={"a": 1, "token": "s3cr3t"})
    assert session.run_dir == Path("/runs/run_0001")
    assert stat.S_IMODE(session.spool.path.stat().st_mode) == 0o700
    spec = from_json(AgentSpec, session.spool.spec.read_bytes())
    assert (spec.run_id, spec.spool, spec.schedule.active) == ("job", str(session.spool.path), 6)
    task = helper.task
    assert (task.run_id, task.launch, task.alone, task.launcher_pid) == ("job", "launch 1", True, os.getpid())
    assert (task.argv, task.config) == (["rankscope", "run", "x", "--api-key", "***"], {"a": 1, "token": "***"})


@pytest.mark.parametrize("free", [5, 63])
def test_few_descriptors_are_left_to_the_job(helper: Any, tmp_path: Path, monkeypatch: Any, free: int) -> None:
    taken = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr("resource.getrlimit", lambda _: (taken + free, taken + free))
    with pytest.raises(OSError, match=r"file descriptors are left .*ulimit -n"):
        begin(PLAN, ToolConfig(), argv=[], plain={})
    assert list(tmp_path.glob("rankscope_*")) == []


def test_a_failing_start_leaves_no_spool(helper: Any, tmp_path: Path) -> None:
    helper.start_error = OSError("no processes left")
    with pytest.raises(OSError, match="no processes left"):
        begin(PLAN, ToolConfig(), argv=[], plain={})
    assert list(tmp_path.glob("rankscope_[!r]*")) == []


@pytest.mark.parametrize("before", [None, "", "/theirs:/more"])
def test_changes_three_variables_and_puts_them_back(helper: Any, before: str | None) -> None:
    session = begin(PLAN, ToolConfig(), argv=[], plain={})
    environ = {"HOME": "/h"} | ({} if before is None else {"PYTHONPATH": before})
    original = dict(environ)
    with session.environment(environ):
        inject, *rest = environ["PYTHONPATH"].split(os.pathsep)
        assert Path(inject, "sitecustomize.py").is_file()
        assert rest == (before.split(os.pathsep) if before else [])
        assert environ.get(ENV_PYTHONPATH) == before
        assert environ[ENV_SPEC] == str(session.spool.spec)
        environ["OMP_NUM_THREADS"] = "1"  # as torchrun does
    assert environ == {**original, "OMP_NUM_THREADS": "1"}
