"""CUDA memory history, with PyTorch's functions replaced; no device is needed."""

from __future__ import annotations

import pickle
import pickletools

import pytest
import torch

from rankscope.agent.backends import memory_history as memory
from rankscope.agent.backends.memory_history import MemoryHistory, watch_out_of_memory
from rankscope.agent.process.guard import kept_messages


class FakeCuda:
    """The allocator's history as one process has it: one switch, one snapshot, observers that stay."""

    def __init__(self, monkeypatch) -> None:
        self.enabled, self.switched, self.observers = False, [], []
        self.events = [{"action": "alloc", "addr": i, "size": 512, "stream": 0} for i in range(5)]
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", self.switch)
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", self.snapshot)
        for name, function in {
            "_cuda_isHistoryEnabled": lambda: self.enabled,
            "_cuda_attach_out_of_memory_observer": self.observers.append,
        }.items():
            monkeypatch.setattr(torch._C, name, function, raising=False)

    def switch(self, enabled="all", **options):
        self.enabled = enabled is not None
        self.switched.append((enabled, options))

    def snapshot(self):
        return {"segments": [], "device_traces": [list(self.events), []]}


@pytest.fixture
def cuda(monkeypatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


@pytest.fixture
def history(cuda) -> MemoryHistory:
    found = MemoryHistory(max_entries=100)
    found.install()
    return found


def read(path) -> dict:
    return pickle.loads(path.read_bytes())


def test_a_window_s_history_is_written_and_ends(cuda, history, tmp_path) -> None:
    path = tmp_path / "memory.pickle"
    assert history.start()
    assert history.dump(path, rank=3, window=0)
    history.stop()
    assert cuda.switched == [("all", {"context": "alloc", "stacks": "python", "max_entries": 100}), (None, {})]
    assert read(path)["device_traces"] == [cuda.events, []]
    assert read(path)["rankscope"] == {"rank": 3, "window": 0, "complete": True}
    assert [p.name for p in tmp_path.iterdir()] == ["memory.pickle"]


VIEWER = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
    "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE", "NEWTRUE", "NEWFALSE",
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
}  # fmt: skip
"""What ``unpickle`` of PyTorch's torch/utils/viz/MemoryViz.js understands, of protocols 2 to 4."""


def test_the_viewer_can_read_it(cuda, history, tmp_path) -> None:
    frames = [{"filename": "/home/user/job/" + "deep/" * 60 + "model.py", "line": 70_000, "name": "forward"}]
    cuda.events += [
        {"action": "alloc", "addr": 0x7F00_0000_0000 + i, "size": 3 << 30, "frames": frames, "pool_id": (0, 1)}
        for i in range(500)
    ]
    history.start()
    history.dump(tmp_path / "memory.pickle", rank=3, window=None, host="h")
    found = list(pickletools.genops((tmp_path / "memory.pickle").read_bytes()))
    assert {opcode.name for opcode, _, _ in found} <= VIEWER
    assert [argument for opcode, argument, _ in found if opcode.name == "PROTO"] == [4]


def test_a_full_ring_is_reported(cuda, history, tmp_path) -> None:
    cuda.events *= 20
    history.start()
    history.dump(tmp_path / "memory.pickle")
    assert read(tmp_path / "memory.pickle")["rankscope"] == {"complete": False}


def test_without_cuda_nothing_happens(tmp_path) -> None:
    # the real functions of this build; on a machine with a device CUDA is not initialised here either
    history = MemoryHistory()
    assert not history.start()
    assert history.reason == "CUDA is not in use, so there is no CUDA memory to record"
    assert not history.dump(tmp_path / "memory.pickle")
    history.stop()
    assert list(tmp_path.iterdir()) == []


def test_the_user_s_own_history_is_left_alone(cuda, history, tmp_path) -> None:
    torch.cuda.memory._record_memory_history(max_entries=7)
    assert not history.start()
    assert history.reason == "the script records CUDA memory itself"
    assert not history.dump(tmp_path / "memory.pickle")
    history.stop()
    assert cuda.switched == [("all", {"max_entries": 7})]


@pytest.mark.parametrize("theirs", ["all", None])
def test_a_history_that_the_user_takes_over_is_his(cuda, history, tmp_path, theirs) -> None:
    history.start()
    torch.cuda.memory._record_memory_history(theirs)
    assert history.reason is not None
    assert not history.dump(tmp_path / "memory.pickle")
    history.stop()
    assert [enabled for enabled, _ in cuda.switched] == ["all", theirs]


def test_an_error_of_the_memory_history_does_not_affect_the_job(cuda, history, monkeypatch, tmp_path) -> None:
    def fail(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", fail)
    assert history.start()
    assert not history.dump(tmp_path / "memory.pickle")
    assert history.reason == "the memory snapshot was not written: no"
    history.stop()
    assert not cuda.enabled
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", fail)
    assert not history.start()
    assert history.reason == "CUDA memory cannot be recorded: no"
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_is_cut_to_its_newest_events(cuda, history, monkeypatch, tmp_path) -> None:
    cuda.events = [{"action": "alloc", "addr": i, "size": 512, "stream": 0, "note": f"{i:0100}"} for i in range(64)]
    whole = len(pickle.dumps(cuda.snapshot(), 4))
    monkeypatch.setattr(memory, "MAX_BYTES", whole * 3 // 8)  # too little for 32 events, enough for 16
    history.start()
    assert history.dump(tmp_path / "memory.pickle")
    found = read(tmp_path / "memory.pickle")
    assert found["device_traces"] == [cuda.events[-16:], []]
    assert found["rankscope"] == {"complete": False}
    assert (tmp_path / "memory.pickle").stat().st_size <= whole * 3 // 8


def test_what_cannot_be_cut_is_not_written(history, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(memory, "MAX_BYTES", 10)
    history.start()
    assert not history.dump(tmp_path / "memory.pickle")
    assert history.reason == "the memory snapshot was not written: a memory snapshot may have 0 MiB"
    assert list(tmp_path.iterdir()) == []


def test_the_first_error_of_memory_leaves_a_snapshot(cuda, tmp_path) -> None:
    path = tmp_path / "oom.pickle"
    watch_out_of_memory(path, rank=1, attempt=0)
    (observe,) = cuda.observers
    observe(0, 2 << 30, 70 << 30, 1 << 30)
    first = path.read_bytes()
    cuda.events = []
    observe(0, 4096, 70 << 30, 0)  # the script tried again
    assert path.read_bytes() == first
    assert read(path)["rankscope"] == {
        "rank": 1, "attempt": 0, "device": 0, "requested_bytes": 2 << 30, "free_bytes": 1 << 30, "complete": True,
    }  # fmt: skip


def test_errors_are_watched_for_as_soon_as_cuda_is_in_use(cuda, monkeypatch, tmp_path) -> None:
    queued = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "_queued_calls", queued)
    watch_out_of_memory(tmp_path / "oom.pickle")
    assert cuda.observers == []
    ((attach, _),) = queued  # what PyTorch calls at the end of the initialisation of CUDA
    attach()
    assert len(cuda.observers) == 1


def test_an_allocator_without_observers_is_no_error(cuda, monkeypatch, tmp_path) -> None:
    def refuse(_):
        raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver")

    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", refuse)
    watch_out_of_memory(tmp_path / "oom.pickle")


def test_the_observer_never_raises_into_the_allocator(cuda, tmp_path) -> None:
    watch_out_of_memory(tmp_path / "nowhere" / "oom.pickle")
    (observe,) = cuda.observers
    observe(0, 1, 1, 1)
    assert any("oom.pickle" in sentence and "training goes on" in sentence for sentence in kept_messages())
