"""Stages of a rank before its first step."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d

from rankscope.agent.startup_stages import StartupStages


@pytest.fixture
def group(monkeypatch):
    """What stands for init_process_group notes what was noted when it ran."""
    calls: list[object] = []

    def init_process_group(*args, **kwargs):
        calls.append((args, kwargs, group.path.read_text().split()[0]))
        if kwargs.get("timeout") == 0:
            raise RuntimeError("nobody came")
        return "done"

    for module in (dist, distributed_c10d):
        monkeypatch.setattr(module, "init_process_group", init_process_group)
    group.calls = calls
    return group


def test_every_stage_is_noted_before_it_is_entered(group, tmp_path):
    group.path, met = tmp_path / "stage", []
    StartupStages(group.path, lambda: met.append(group.path.read_text().split()[0])).watch()
    assert group.path.read_text().startswith("began ")
    assert dist.init_process_group("gloo", rank=0) == "done"
    assert group.calls == [(("gloo",), {"rank": 0}, "rendezvous")]
    assert met == ["group"]
    assert dist.init_process_group is distributed_c10d.init_process_group


def test_an_error_of_the_scripts_stays_its_own(group, tmp_path):
    group.path, met = tmp_path / "stage", []
    StartupStages(group.path, lambda: met.append(1)).watch()
    with pytest.raises(RuntimeError, match="nobody came"):
        dist.init_process_group(timeout=0)
    assert met == []
    assert group.path.read_text().startswith("rendezvous ")


def test_a_folder_that_is_gone_is_no_error(group, tmp_path):
    group.path = tmp_path / "stage"
    group.path.write_text("none 0")
    StartupStages(tmp_path / "gone" / "stage", lambda: 1 / 0).watch()
    assert dist.init_process_group() == "done"
