"""Notes on the communication calls of a window: from torch's flight recorder, or from wrapped Python calls."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.agent.backends import call_notes
from rankscope.agent.backends.call_notes import MOST_NOTES, CallNotes, tail
from rankscope.trace.kineto.build import read_trace

pytestmark = pytest.mark.process

ENTRY = {
    "process_group": ["3", "undefined"],
    "collective_seq_id": 2,
    "p2p_seq_id": 956,
    "op_id": 1456,
    "profiling_name": "nccl:send 1->2",
    "time_created_ns": 1795933991233804579,
    "input_sizes": [[1, 128, 512]],
    "input_dtypes": ["BFloat16"],
    "output_sizes": [[1, 128, 512]],
    "state": "completed",
}
"""Of one rank of a 1F1B pipeline (torch 2.11)."""
TOLD = [1795933991233804579, "3", "nccl:send 1->2", 2, 956, 65536, 65536, "BFloat16"]


def test_an_entry_of_the_flight_recorder() -> None:
    assert tail([ENTRY], 0) == [TOLD]
    bare = {**ENTRY, "profiling_name": "nccl:coalesced", "input_sizes": [], "output_sizes": [], "input_dtypes": []}
    assert tail([bare], 0) == [[TOLD[0], "3", "nccl:coalesced", 2, 956, -1, -1, ""]]


def test_only_the_window_and_the_last_calls_of_it() -> None:
    entries = [{**ENTRY, "time_created_ns": n, "collective_seq_id": n} for n in range(MOST_NOTES + 10)]
    assert [call[3] for call in tail(reversed(entries), 3)] == list(range(10, MOST_NOTES + 10))
    assert [call[3] for call in tail(entries, MOST_NOTES)] == list(range(MOST_NOTES, MOST_NOTES + 10))


@pytest.mark.parametrize("damage", [{"time_created_ns": None}, {"process_group": []}, {"input_sizes": [[None]]}])
def test_an_entry_of_an_unknown_form_is_left_out(damage: dict[str, Any]) -> None:
    assert tail([{**ENTRY, **damage}, ENTRY, {}], 0) == [TOLD]


class Group:
    group_name = "5"

    def rank(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ("gloo:all_reduce", ["python:send 1->0", "gloo:all_reduce"]),  # as gloo's recorder, torch 2.13
        ("nccl:send 1->0", ["nccl:send 1->0"]),
    ],
)
def test_messages_that_the_recorder_does_not_keep(monkeypatch: pytest.MonkeyPatch, kept: str, told: list[str]) -> None:
    monkeypatch.setattr(
        call_notes, "recorded_calls", lambda: [ENTRY | {"profiling_name": kept, "time_created_ns": 2**62}]
    )
    notes = CallNotes()
    notes.begin()
    notes.made("allreduce", (Group(), [torch.ones(3)]))
    notes.made("send", (Group(), [torch.ones(3)], 0, 7))
    assert [call[2] for call in json.loads(notes.as_metadata() or "")["calls"]] == told


def test_without_a_flight_recorder_wrapped_calls_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_notes, "recorded_calls", list)
    notes = CallNotes()
    notes.begin()
    assert notes.as_metadata() is None
    for method in ("allreduce", "_allgather_base"):
        notes.made(method, (Group(), [torch.ones(3)]))
    notes.made("send", (Group(), [torch.ones(3), torch.ones(4)], 0, 7))
    notes.made("recv", (Group(), [torch.ones(3)], 2, 7))
    notes.made("recv", (Group(), [torch.ones(3)]))  # which the script will be told is wrong
    calls = json.loads(notes.as_metadata() or "")["calls"]
    assert [call[1:] for call in calls] == [
        ["5", "python:allreduce", -1, -1, -1, -1, ""],
        ["5", "python:allgather_base", -1, -1, -1, -1, ""],
        ["5", "python:send 1->0", -1, -1, 7, 7, ""],
        ["5", "python:recv 1<-2", -1, -1, 3, 3, ""],
    ]
    assert calls[0][0] <= calls[1][0]


def test_a_recorder_that_fails_or_is_too_large_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C import _distributed_c10d as c10d

    asked = []

    def broken(**_: Any) -> bytes:
        asked.append(1)
        raise RuntimeError("the device is in error")

    def whole(**_: Any) -> bytes:
        return json.dumps({"entries": [ENTRY, 7]}).encode()

    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr(c10d, "_dump_fr_trace_json", broken, raising=False)
    monkeypatch.setattr(c10d, "_dump_nccl_trace_json", whole, raising=False)
    assert call_notes.recorded_calls() == [ENTRY]
    assert asked == [1]
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "10001")
    assert call_notes.recorded_calls() is None
    assert asked == [1]


def test_the_form_of_older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C import _distributed_c10d as c10d

    def pickled(**given: Any) -> bytes:
        assert given == {"includeCollectives": True, "includeStackTraces": False, "onlyActive": False}
        return pickle.dumps({"entries": [ENTRY]})

    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.delattr(c10d, "_dump_fr_trace_json", raising=False)
    monkeypatch.delattr(c10d, "_dump_nccl_trace_json", raising=False)
    monkeypatch.setattr(c10d, "_dump_nccl_trace", pickled, raising=False)
    assert call_notes.recorded_calls() == [ENTRY]


SCRIPT = """
import sys
from pathlib import Path
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
from rankscope.agent.backends import outstanding
from rankscope.agent.backends.inline import InlineCapture
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.records.spec import CaptureSpec

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
first, second = dist.new_group([0]), dist.new_group([0])
x = torch.ones(3)
dist.all_reduce(x, group=first)  # before the window
capture = InlineCapture(
    CaptureSpec(
        activities=["auto"], record_shapes=False, with_stack=False, profile_memory=False, with_flops=False,
        with_modules=False,
    ),
    CuptiTeardown(),
)
capture.prepare()
capture.start(0, {"rank": 0, "world_size": 1})
for group in (first, second, first, None):
    dist.all_reduce(x, group=group)
    (x + 1).sum()
if sys.argv[2] == "functional":
    functional.wait_tensor(functional.all_reduce(x, "sum", second))
wants_to_run = iter([True] * 3)  # a thread of gloo, at the end of each of so many steps
outstanding._ending = lambda _tasks: next(wants_to_run, False)
assert [capture.drained(), capture.drained()] == [False, False]
assert capture.drained(60.0), "the next window is due, and the thread comes to its end meanwhile"
capture.stop(Path(sys.argv[1]) / "rank_0.json")
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("size", "calls"), [("2000", "functional"), ("0", "python")])
def test_groups_of_gloo_calls_in_a_recorded_window(tmp_path: Path, size: str, calls: str) -> None:
    """torch 2.13 records no group of a gloo call. With the flight recorder off, only the calls of Python are known."""
    environ = {**os.environ, "TORCH_FR_BUFFER_SIZE": size}
    subprocess.run([sys.executable, "-c", SCRIPT, tmp_path, calls], env=environ, check=True, timeout=300)
    trace = read_trace(tmp_path / "rank_0.json")
    names = [trace.groups[g].name if g >= 0 else "?" for g in trace.collectives.group.tolist()]
    # calls that go past Python are in the flight recorder, which older versions have for NCCL only
    past = ["2" if hasattr(torch._C._distributed_c10d, "_dump_fr_trace_json") else "?"] if calls == "functional" else []
    assert names == ["1", "2", "1", "0", *past]
