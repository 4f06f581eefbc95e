"""Traces of the script's own profiler, written by ``rankscope.trace_handler``."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import pytest
import torch

import rankscope

pytestmark = pytest.mark.filterwarnings("ignore")
"""PyTorch's profiler warns between two recordings; where that is an error it ends the process (torch 2.13)."""


def profiled(folder: Path) -> None:
    """Two recordings of two steps each."""
    handler = rankscope.trace_handler(folder)
    plan = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    only_cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=only_cpu, schedule=plan, on_trace_ready=handler) as profiler:
        for _ in range(8):
            torch.ones(3).add(1)
            profiler.step()


def test_the_files_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    profiled(tmp_path)
    # steps 2 and 3, and 6 and 7: the profiler has counted as many when it writes
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["rank_3_step_4.pt.trace.json.gz", "rank_3_step_8.pt.trace.json.gz"]
    traces = rankscope.load_traces(tmp_path, cache=False)
    assert [(t.rank, t.window, t.meta.world_size) for t in traces.traces] == [(3, 0, 8), (3, 1, 8)]
    assert [t.steps.number.tolist() for t in traces.traces] == [[2, 3], [6, 7]]
    assert all(t.meta.host for t in traces.traces)
    assert gzip.decompress((tmp_path / names[0]).read_bytes()).startswith(b'{"rankscope": {"host"')


def test_a_folder_that_takes_no_file_costs_the_trace_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match=r"rankscope.trace_handler wrote no trace to .*file: \w+Error"):
        profiled(tmp_path / "file")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        profiled(tmp_path / "file")
    with pytest.raises(TypeError):
        rankscope.trace_handler(3)


def test_without_a_rank_none_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    profiled(tmp_path)
    assert not any("rank" in path.name for path in tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 2
