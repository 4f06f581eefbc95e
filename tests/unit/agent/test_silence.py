"""Libkineto's log: silent while it works for us, and as the script left it afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROFILES = """
import torch
from rankscope.agent.backends.inline import InlineCapture
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.config import ToolConfig, to_agent_spec
from pathlib import Path
import sys, tempfile

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

for name in sys.argv[1:]:
    {"ours": ours, "theirs": theirs}[name]()
"""


@pytest.mark.parametrize(("order", "level"), [(["ours", "theirs", "ours"], None), (["theirs", "ours", "theirs"], "6")])
def test_only_the_scripts_own_profiler_is_heard_and_as_without_us(order, level):
    environ = {} if level is None else {"KINETO_LOG_LEVEL": level}

    def heard(*words):
        """What libkineto said on standard error, without times and threads."""
        command = [sys.executable, "-c", PROFILES, *words]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return [line.split("] ")[-1] for line in done.stderr.splitlines()]

    assert heard(*order) == heard(*(name for name in order if name == "theirs"))
