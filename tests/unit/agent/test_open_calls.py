"""Calls in which a rank waits: what is completed from the recorder's other entries, and from the stack."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import pytest

from rankscope.agent.open_calls import add_from_stack, settle_messages
from rankscope.records.running.hang import Call

GROUPS = {"0": [0, 1, 2, 3], "5": [2, 3]}


def recorded(name: str, *, seq: int = 2, done: bool = False, group: str = "0") -> Call:
    message = "send" in name or "recv" in name
    return Call(group=group, seq=seq, name=f"nccl:{name}", done=done, message=message)


def test_messages_of_a_batch_end_with_its_launch():
    """As NCCL's recorder has them (torch 2.11): messages stay scheduled, and all launches have one number."""
    first = [recorded("send 0->1"), recorded("recv 0<-1"), recorded("coalesced", done=True)]
    second = [recorded("send 0->1"), recorded("coalesced")]
    calls = [recorded("all_reduce", done=True), *first, *second]
    settle_messages(calls, GROUPS)
    assert [call.done for call in calls] == [True, True, True, True, False, False]
    assert [call.message for call in calls] == [False, True, True, True, True, True]
    assert [call.peer for call in calls] == [None, 1, 1, None, 1, None]


def test_peers_are_ranks_of_the_job_and_coalesced_collectives_stay_collectives():
    calls = [recorded("recv 0<-1", group="5"), recorded("coalesced", seq=3), recorded("send 1->0", group="9")]
    settle_messages(calls, GROUPS)
    assert [call.peer for call in calls] == [3, None, None]  # position 1 of ranks 2 and 3; group 9 is not known
    assert not calls[1].message


TORCH = """
class Group:
    group_name = "5"

def waits(function, **values):
    return globals()[function](**values)

def send(tensor, dst=None, group=None, group_dst=None):
    return inner()

def recv(tensor, src=None, group=None, group_src=None):
    return inner()

def broadcast(tensor, src=None, group=None, group_src=None):
    return inner()

def new_group(ranks=None):
    return inner()

def monitored_barrier(group=None):
    return inner()

def inner():
    return frame()
"""


@pytest.fixture
def at(monkeypatch):
    """Functions with the names and arguments of torch's, in a file of that name."""
    distributed_c10d = pytest.importorskip("torch.distributed.distributed_c10d")
    values = {"frame": lambda: sys._getframe(1)}
    exec(compile(TORCH, "/x/torch/distributed/distributed_c10d.py", "exec"), values)
    default = type("Group", (), {"group_name": "0"})
    monkeypatch.setattr(distributed_c10d, "_get_default_group", lambda: default)
    return values


def test_sends_and_receives_of_gloo_come_from_the_stack(at):
    for function, values, peer, group in (
        ("send", {"dst": 3}, 3, "0"),
        ("send", {"group": at["Group"](), "group_dst": 0}, 2, "5"),
        ("recv", {"src": 1}, 1, "0"),
        ("recv", {}, None, "0"),  # from anybody
    ):
        calls: list[Call] = []
        add_from_stack(calls, at["waits"](function, tensor=None, **values), GROUPS)
        (call,) = calls
        assert (call.name, call.peer, call.group, call.message, call.done) == (
            f"python:{function}", peer, group, True, False,
        )  # fmt: skip
    calls = [recorded("send 0->1")]  # the recorder knows it
    add_from_stack(calls, at["waits"]("send", tensor=None, dst=1), GROUPS)
    assert len(calls) == 1


def test_calls_that_no_recorder_has_follow_the_last_one(at):
    for function in ("new_group", "monitored_barrier"):
        calls = [recorded("all_reduce", seq=7, done=True)]
        add_from_stack(calls, at["waits"](function), GROUPS)
        assert [(call.name, call.seq, call.done) for call in calls[1:]] == [(f"python:{function}", 8, False)]


def test_the_root_of_the_call_in_which_a_rank_waits(at):
    calls = [recorded("broadcast", seq=6, done=True), recorded("broadcast", seq=7)]
    add_from_stack(calls, at["waits"]("broadcast", tensor=None, group_src=1), GROUPS)
    assert [call.root for call in calls] == [None, 1]
    add_from_stack(calls, at["waits"]("broadcast", tensor=None, src="nonsense"), GROUPS)  # nothing is raised
    add_from_stack(calls, sys._getframe(), GROUPS)
    add_from_stack(calls, None, GROUPS)
    assert [call.root for call in calls] == [None, 1]


def stands(job, *, waits: bool = True) -> list[Call]:
    """What is told of a thread that is in ``job``, which waits in a function without a frame."""
    begun, over = threading.Event(), threading.Lock()
    over.acquire()

    def wait() -> None:
        begun.set()

    thread = threading.Thread(target=job, args=(SimpleNamespace(wait=over.acquire), over.acquire, wait), daemon=True)
    thread.start()
    assert begun.wait(60)
    seen, calls, deadline = 0, [recorded("all_reduce", done=True)], time.monotonic() + 60
    while seen < 20 and len(calls) == 1 and time.monotonic() < deadline:  # it may be on the way there
        time.sleep(0.005)
        frame = sys._current_frames()[thread.ident]
        seen += frame.f_code is job.__code__ and not waits
        add_from_stack(calls, frame, GROUPS)
    over.release()
    thread.join(60)
    return calls[1:]


@pytest.fixture
def work(at):
    distributed = pytest.importorskip("torch.distributed")

    class Begun(distributed.Work):
        def __init__(self, *, ended: bool) -> None:
            super().__init__()
            self.is_completed = lambda: ended

    return Begun


def test_a_message_of_a_batch_of_gloo_is_found_beside_it(work):
    import torch
    from torch import distributed

    def message(op, peer: int):
        found = object.__new__(distributed.P2POp)
        found.op, found.peer, found.group, found.tensor = op, peer, None, torch.ones(3)
        return found

    def job(message_of, acquire, tell):
        batch = [message(distributed.isend, 1), message(distributed.irecv, 3)]
        begun = [work(ended=True), work(ended=False)]
        tell()
        message_of.wait()
        return batch, begun

    (call,) = stands(job)
    assert (call.name, call.peer, call.group, call.sizes, call.done) == ("python:recv", 3, "0", [[3]], False)


def test_a_message_without_a_batch_has_no_known_peer(work):
    def job(message_of, acquire, tell):
        begun = [work(ended=False)]
        tell()
        message_of.wait()
        return begun

    (call,) = stands(job)
    assert (call.message, call.peer) == (True, None)


def test_who_has_begun_a_message_and_does_something_else_does_not_wait_for_it(work):
    def job(message_of, acquire, tell):
        begun = [work(ended=False)]
        tell()
        acquire()
        return begun, message_of.wait

    assert stands(job, waits=False) == []
