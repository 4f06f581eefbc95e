"""Libkineto's log level: silent during calls of rankscope, and restored afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

PROFILES = """
import torch
from rankscope.agent.backends.inline import InlineCapture
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.config import ToolConfig, to_agent_spec
from pathlib import Path
import os, sys, tempfile

def theirs():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.ones(3) + 1

def ours():
    spec = to_agent_spec(ToolConfig(), run_id="r", spool=Path("/")).capture
    capture = InlineCapture(spec, CuptiTeardown())
    capture.prepare()
    capture.start(0, {})
    torch.ones(3) + 1
    assert capture.drained()
    with tempfile.TemporaryDirectory() as folder:
        capture.stop(Path(folder) / "trace.json")

from torch._inductor import config  # theirs imports it, with much that comes with it: once for all
del sys.modules["torch._inductor.config"]  # without which ours goes another way

for order in sys.argv[2:]:
    if (child := os.fork()) == 0:
        os.dup2(os.open(f"{sys.argv[1]}/{order}", os.O_CREAT | os.O_WRONLY), 2)
        for name in order.split():
            {"ours": ours, "theirs": theirs}[name]()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)  # taking the modules apart takes long
"""


@pytest.mark.parametrize(("order", "level"), [(["ours", "theirs", "ours"], None), (["theirs", "ours", "theirs"], "6")])
def test_only_the_scripts_own_profiler_is_heard_and_as_without_us(order, level, tmp_path):
    environ = {} if level is None else {"KINETO_LOG_LEVEL": level}
    orders = [" ".join(order), " ".join(name for name in order if name == "theirs")]
    subprocess.run([sys.executable, "-c", PROFILES, str(tmp_path), *orders], env=environ, check=True)
    # what libkineto said on standard error, without times and threads
    ours, theirs = ([line.split("] ")[-1] for line in (tmp_path / o).read_text().splitlines()] for o in orders)
    # that there is no device is said once, by whoever begins first: a torch for CUDA where there is none
    once = [line for line in theirs if line.startswith("gpuGetDeviceCount")]
    assert ours == [line for line in theirs if line not in once or order[0] == "theirs"]
    # torch 2.10 to 2.12 warn, whatever libkineto does
    told = [line for line in theirs if "UserWarning" not in line and "_warn_once" not in line]
    assert bool(told) == (level is None)
