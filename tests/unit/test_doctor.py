"""Findings of ``rankscope doctor``. Folders replace the node."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import pytest

from rankscope import cli
from rankscope.config import CaptureConfig, ToolConfig
from rankscope.doctor import devices, software, storage
from rankscope.doctor.base import CheckInput, CheckResult
from rankscope.doctor.table import CHECKS, examine


@pytest.fixture
def question(tmp_path: Path) -> CheckInput:
    return CheckInput(ToolConfig(), tmp_path, 1)


def test_every_check_is_in_the_table() -> None:
    checks = {
        function
        for module in (devices, software, storage)
        for name, function in vars(module).items()
        if name in module.__all__ and inspect.isfunction(function)
    }
    assert set(CHECKS) == checks


def test_a_check_that_fails_costs_its_own_lines_only(question: CheckInput) -> None:
    def broken(_question: CheckInput) -> list[CheckResult]:
        raise RuntimeError("no luck")

    found = list(examine(question, (broken, lambda _question: [CheckResult("ok", "fine")])))
    assert [f.state for f in found] == ["note", "ok"]
    assert found[0].text == "broken could not be looked at: RuntimeError: no luck"


@pytest.mark.parametrize(("torch", "state"), [("2.13.0+cpu", "ok"), ("2.6.0", "ok"), ("2.5.1", "bad"), (None, "bad")])
def test_versions_are_distinguished_from_metadata(question, monkeypatch, torch, state) -> None:
    def version(name: str) -> str:
        if torch is None:
            raise software.metadata.PackageNotFoundError(name)
        return torch

    monkeypatch.setattr(software.metadata, "version", version)
    assert list(software.versions(question))[-1].state == state


def test_who_records_and_why(tmp_path: Path) -> None:
    for backend, state in (("auto", "ok"), ("kineto", "note")):
        config = ToolConfig(capture=CaptureConfig(backend=backend))
        found = list(software.plan(CheckInput(config, tmp_path, 1)))
        assert (found[-1].state, "torch.profiler" in found[-1].text) == (state, True)


def test_a_job_of_several_nodes_without_a_name_is_reported(question, monkeypatch) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert [f.state for f in software.launcher(question)] == ["ok"]
    monkeypatch.setenv("MV2_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("MV2_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("MV2_COMM_WORLD_LOCAL_SIZE", "2")
    assert [f.state for f in software.launcher(question)] == ["ok", "bad"]


def test_accelerators_and_cuptis_rights(question, tmp_path, monkeypatch) -> None:
    assert [f.text for f in devices.accelerators(question, tmp_path)] == ["no accelerator: the CPU is recorded"]
    assert list(devices.cupti(question, tmp_path)) == []
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    params = tmp_path / "proc/driver/nvidia/params"
    params.parent.mkdir(parents=True)
    assert [f.text for f in devices.accelerators(question, tmp_path)] == ["accelerators: NVIDIA"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for value, state in (("0", "ok"), ("1", "note")):
        params.write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {value}\n")
        assert [f.state for f in devices.cupti(question, tmp_path)] == [state]
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1").mkdir(parents=True)
    assert "MIG" in list(devices.cupti(question, tmp_path))[-1].text


def test_other_profilers_are_seen(question, tmp_path, monkeypatch) -> None:
    for name in devices._INJECTED:
        monkeypatch.delenv(name, raising=False)
    assert [f.state for f in devices.other_profilers(question, tmp_path)] == ["ok"]
    (tmp_path / "17").mkdir()
    (tmp_path / "17/comm").write_text("nv-hostengine\n")
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    found = list(devices.other_profilers(question, tmp_path))
    assert [f.state for f in found] == ["note", "note"]
    assert "Nsight" in found[0].text
    assert "DCGM" in found[1].text


def test_the_shared_folder_is_tried_and_left_as_it_was(question, tmp_path) -> None:
    found = list(storage.shared_folder(question))
    assert "MB/s" in found[1].text
    assert "ms apart" in found[-1].text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_some_host_does_not_see(tmp_path, monkeypatch) -> None:
    # GIVEN two of three hosts, of which one has a clock that is 2 s ahead of the store's
    place = tmp_path / ".rankscope_doctor"
    place.mkdir()
    other = place / "other.json"
    other.write_text("")
    other.write_text(json.dumps({"time": other.stat().st_mtime + 2.0}))
    monkeypatch.setattr(storage, "_HOSTS_WITHIN_S", 0.0)
    found = list(storage._hosts(tmp_path, 3))
    assert [f.state for f in found] == ["bad", "note"]
    assert "2 of 3 hosts" in found[0].text


def test_a_full_disk_and_low_limits(question, monkeypatch) -> None:
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _folder: type("Usage", (), {"free": 1 << 20}))
    monkeypatch.setattr(storage.resource, "getrlimit", lambda _kind: (256, 256))
    assert [f.state for f in storage.own_disk(question)] == ["bad"]
    assert [(f.state, f.remedy) for f in storage.limits(question)] == [
        ("note", "ulimit -n 256"),
        ("note", "ulimit -u 256"),
    ]


def test_one_line_each(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _folder: type("Usage", (), {"free": 1 << 20}))
    assert cli.main(["doctor", "-S", f"run.dir={tmp_path / 'a/b'}"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("ok  ", "note", "BAD ")) for line in lines)
    assert any(line.startswith("BAD ") and "make room" in line for line in lines)
