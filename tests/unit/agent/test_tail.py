"""The device may be steps behind its host when a window ends: work launched in the window is waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rankscope.agent.backends.base import DeviceTail
from rankscope.config import ToolConfig, to_agent_spec
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import RankRecord
from rankscope.rundir.spool import Spool

# Records steps 3 and 4. Step 4 has ended on the device at the third question, asked when step 6 has ended.
SCRIPT = """
import os, sys
import torch
from rankscope.agent.session import Session
from rankscope.agent.windows.rank_windows import RankWindows
from rankscope.records.codec import from_json
from rankscope.records.spec import AgentSpec

class Lagging:
    name, device, recording = "inline", None, False
    answers = iter([False, False, True])

    def prepare(self): pass
    def start(self, step, metadata): self.recording, self.marked = True, [step]
    def mark(self, step): self.marked.append(step)
    def drained(self, within_s=0.0): return next(self.answers)
    def owns(self, profile): return False
    def stop(self, target):
        target.write_text(f"{self.marked} stopped after step {steps - 1}")
        return target.name

os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
RankWindows._maker = lambda self, window, spec: Lagging
Session.begin(from_json(AgentSpec, open(sys.argv[1]).read()))
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
for steps in range(1, 12):
    optimizer.step()
"""


@pytest.mark.process
def test_steps_that_only_wait_for_the_device_are_not_the_windows(tmp_path: Path) -> None:
    config = ToolConfig()
    config.capture.backend = "inline"
    config.schedule.skip_first, config.schedule.wait, config.schedule.warmup, config.schedule.active = 1, 1, 1, 2
    spool = Spool(tmp_path)
    spool.spec.write_text(to_json(to_agent_spec(config, run_id="r", spool=tmp_path)))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script, spool.spec], check=True, timeout=300)
    record = from_json(RankRecord, spool.record(0, 0, 0).read_bytes())
    assert (record.status, record.reason, record.first_step, record.last_step) == ("ok", None, 3, 4)
    assert len(record.steps.inside_ms) == 2
    assert spool.trace(0, 0, 0).read_text() == "[3, 4] stopped after step 6"


@pytest.fixture
def events(monkeypatch):
    """What is done to CUDA events; they are over at the second query."""
    done: list[str] = []

    class Event:
        def record(self) -> None:
            done.append("record")

        def query(self) -> bool:
            done.append("query")
            return done.count("query") == 2

    monkeypatch.setattr(torch.cuda, "Event", Event)
    return SimpleNamespace(done=done)


def test_one_event_is_asked_until_it_is_over(events) -> None:
    tail = DeviceTail("cuda")
    assert [tail.is_over(), tail.is_over()] == [False, True]
    assert events.done == ["record", "query", "query"]


def test_a_cpu_has_no_tail() -> None:
    assert DeviceTail(None).is_over()
