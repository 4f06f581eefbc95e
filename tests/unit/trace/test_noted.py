"""The agent's notes on calls complete what their events lack, and change nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.trace.columns import Piece, RankTrace
from rankscope.trace.files.cache import load_cached, store_cached
from rankscope.trace.kineto.build import read_trace
from rankscope.trace.kineto.call_notes import notes_of

Write = Callable[..., Path]
Make = Callable[..., dict[str, Any]]
KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GROUPS = [
    {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]},
    {"pg_name": "1", "pg_desc": "undefined", "ranks": [0, 1]},
    {"pg_name": "3", "pg_desc": "undefined", "ranks": [0, 2]},
]


def note(us: float, group: str, name: str, seq: int = 1, p2p: int = 0, elements: int = 8) -> list[Any]:
    return [round(us * 1000), group, name, seq, p2p, elements, elements, "Float"]


@pytest.fixture
def read(write_trace: Write) -> Callable[..., RankTrace]:
    def made(events: list[dict[str, Any]], notes: Any) -> RankTrace:
        info = {"rank": 0, "world_size": 4, "pg_config": GROUPS}
        return read_trace(write_trace(events, distributedInfo=info, rankscope_calls=notes))

    return made


def names(trace: RankTrace) -> list[str]:
    return [trace.groups[g].name if g >= 0 else "?" for g in trace.collectives.group.tolist()]


class Gloo:
    """A training thread that issues calls, and two threads for each group that run them."""

    def __init__(self, make: Make) -> None:
        self.make, self.events, self.notes = make, list[dict[str, Any]](), list[list[Any]]()

    def call(self, at: int, group: str, thread: int, *, begins: int, lasts: int, kind: str = "all_reduce") -> None:
        op = f"c10d::{kind.replace('_', '')}_"
        self.events.append(self.make(at, 5, cat="cpu_op", name=op, pid=1, tid=1))
        self.events.append(self.make(begins, lasts, cat="cpu_op", name=f"gloo:{kind}", pid=1, tid=thread))
        self.notes.append(note(at + 2, group, f"gloo:{kind}", seq=len(self.notes)))


def test_gloo_calls_belong_to_the_group_of_their_thread(make_event: Make, read: Callable[..., RankTrace]) -> None:
    gloo = Gloo(make_event)
    for step in range(0, 4000, 1000):
        gloo.call(step, "1", 11, begins=step + 8, lasts=90)
        gloo.call(step + 100, "3", 31, begins=step + 108, lasts=90)
        gloo.call(step + 200, "1", 12, begins=step + 208, lasts=90)
        gloo.call(step + 300, "3", 32, begins=step + 308, lasts=90)
    trace = read(gloo.events, {"calls": gloo.notes})
    assert names(trace) == ["1", "3"] * 8
    assert trace.collectives.seq.tolist() == list(range(16))
    assert trace.collectives.in_elements.tolist() == [8] * 16
    assert "rankscope_calls" not in trace.meta.raw  # a column by now


def test_calls_that_wait_in_the_queue_of_their_group(make_event: Make, read: Callable[..., RankTrace]) -> None:
    """Three calls of group 1 are issued at once and run one after the other; one of group 3, issued last, runs first of
    all but one. Nearest in time alone would give the waiting ones to the wrong notes."""
    gloo = Gloo(make_event)
    for step in range(0, 9000, 3000):
        gloo.call(step, "1", 11, begins=step + 8, lasts=500)
        gloo.call(step + 10, "1", 11, begins=step + 508, lasts=500)
        gloo.call(step + 20, "1", 11, begins=step + 1008, lasts=500)
        gloo.call(step + 30, "3", 31, begins=step + 38, lasts=100)
        # and one of each that waits for nobody
        gloo.call(step + 2000, "1", 11, begins=step + 2008, lasts=50)
        gloo.call(step + 2100, "1", 11, begins=step + 2108, lasts=50)
        gloo.call(step + 2200, "1", 11, begins=step + 2208, lasts=50)
        gloo.call(step + 2300, "3", 31, begins=step + 2308, lasts=50)
    trace = read(gloo.events, {"calls": gloo.notes})
    assert names(trace) == ["1", "3", "1", "1", "1", "1", "1", "3"] * 3
    own = [n for n, name in zip(trace.collectives.seq.tolist(), names(trace), strict=True) if name == "1"]
    assert own == [8 * step + n for step in range(3) for n in (0, 1, 2, 4, 5, 6)]


def test_a_note_too_few_moves_no_other(make_event: Make, read: Callable[..., RankTrace]) -> None:
    gloo = Gloo(make_event)
    for at in range(0, 3000, 300):
        gloo.call(at, "1", 11, begins=at + 8, lasts=100)
        gloo.call(at + 150, "3", 31, begins=at + 158, lasts=100)
    del gloo.notes[8]  # the recorder keeps the last calls only, or was just being written
    trace = read(gloo.events, {"calls": gloo.notes})
    assert trace.collectives.seq.tolist() == [*range(8), -1, *range(9, 20)]


def test_messages_are_run_by_the_thread_that_issues_them(make_event: Make, read: Callable[..., RankTrace]) -> None:
    """Of two groups in turn: in each a send to the other rank, by its place, and a receive of what it answers."""
    gloo = Gloo(make_event)
    for step in range(0, 4000, 1000):
        for at, group in ((step, "1"), (step + 400, "3")):
            for later, kind, title in ((0, "send", "send 0->1"), (200, "recv", "recv 0<-1")):
                op = f"c10d::{kind}"
                gloo.events.append(make_event(at + later, 20, cat="cpu_op", name=op, pid=1, tid=1))
                where = {"cat": "user_annotation", "name": f"gloo:{kind}", "pid": 1, "tid": 1}
                gloo.events.append(make_event(at + later + 10, 150, **where))
                gloo.notes.append(note(at + later - 5, group, f"python:{title}"))
    calls = (trace := read(gloo.events, {"calls": gloo.notes})).collectives
    assert names(trace) == ["1", "1", "3", "3"] * 4
    assert calls.kind == ["send", "recv"] * 8
    assert calls.peer.tolist() == [1, 1, 2, 2] * 4


def test_what_python_noted_is_nothing_for_a_kernel(make_event: Make, read: Callable[..., RankTrace]) -> None:
    """Of a batch it does not say where it ends, so that a kernel would be taken for the last piece of it."""
    nccl = Nccl(make_event)
    nccl.batch(1000, "send 0->1", "recv 0<-3", number=7)
    nccl.notes = [[n[0], n[1], n[2].replace("nccl:", "python:"), *n[3:]] for n in nccl.notes[:2]]
    assert read(nccl.events, {"calls": nccl.notes}).collectives.pieces == [()]


class Nccl:
    """Kernels without arguments and without any record."""

    def __init__(self, make: Make) -> None:
        self.make, self.events, self.notes, self.count = make, list[dict[str, Any]](), list[list[Any]](), 0

    def launch(self, at: float, *, name: str = KERNEL, lost: bool = False) -> None:
        self.count += 1
        args = {"correlation": self.count}
        self.events.append(self.make(at, 2, cat="cuda_driver", name="cuLaunchKernelEx", pid=1, tid=1, args=args))
        if not lost:
            self.events.append(self.make(at + 50, 9, name=name, args={"stream": 9, **args}))

    def batch(self, at: float, *titles: str, group: str = "0", number: int = 1, **more: Any) -> None:
        """Pieces, the call that ends them, its launch 30 us later."""
        self.notes += [note(at + i, group, f"nccl:{title}", 2, number, 8) for i, title in enumerate(titles)]
        self.notes.append(note(at + len(titles), group, "nccl:coalesced", 2, number, -1))
        self.launch(at + len(titles) + 30, **more)


def test_pieces_of_a_batch_from_the_flight_recorder(make_event: Make, read: Callable[..., RankTrace]) -> None:
    nccl = Nccl(make_event)
    nccl.batch(1000, "send 0->1", "recv 0<-3", number=7)
    nccl.batch(2000, "send 0->1", group="3", number=3)  # places within the group: of ranks 0 and 2
    nccl.notes.append(note(3000, "1", "nccl:recv 0<-1", 2, 9))  # by itself
    nccl.launch(3030)
    nccl.notes.append(note(4000, "0", "nccl:all_to_all", 5, 9))
    nccl.launch(4030)
    trace = read(nccl.events, {"calls": nccl.notes})
    calls = trace.collectives
    assert calls.kind == ["sendrecv", "send", "recv", "all_to_all"]
    assert calls.pieces[:3] == [(Piece(True, 1, 8), Piece(False, 3, 8)), (Piece(True, 2, 8),), (Piece(False, 1, 8),)]
    assert names(trace) == ["0", "3", "1", "0"]
    assert calls.peer.tolist() == [-1, 2, 1, -1]


def test_a_lost_kernel_keeps_its_note_to_itself(make_event: Make, read: Callable[..., RankTrace]) -> None:
    nccl = Nccl(make_event)
    for number in range(6):
        nccl.batch(1000 * number, f"send 0->{1 + number % 3}", number=number, lost=number == 2)
    trace = read(nccl.events, {"calls": nccl.notes})
    assert trace.collectives.peer.tolist() == [1, 2, 1, 2, 3]
    # and a kernel whose note had gone has none of another's
    nccl = Nccl(make_event)
    for number in range(6):
        nccl.batch(1000 * number, f"send 0->{1 + number % 3}", number=number)
    trace = read(nccl.events, {"calls": nccl.notes[4:]})
    assert trace.collectives.peer.tolist() == [-1, -1, 3, 1, 2, 3]


def test_what_the_trace_says_itself_comes_first(make_event: Make, read: Callable[..., RankTrace]) -> None:
    said = {"Collective name": "allreduce", "Process Group Name": "3", "In msg nelems": 4, "Out msg nelems": 4}
    launch = make_event(1000, 2, cat="cuda_driver", name="cuLaunchKernelEx", pid=1, tid=1, args={"correlation": 1})
    kernel = make_event(1050, 9, name="ncclDevKernel_AllReduce", args={"stream": 9, "correlation": 1, **said})
    trace = read([launch, kernel], {"calls": [note(970, "0", "nccl:all_reduce")]})
    assert names(trace) == ["3"]
    assert trace.collectives.in_elements.tolist() == [4]


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        [],
        {"calls": 3},
        {"calls": [[1, "0", "nccl:all_reduce", 1, 1, 1, 1]]},
        {"calls": [["1", "0", "nccl:all_reduce", 1, 1, 1, 1, "Float"]]},
        {"calls": [[1, 0, "nccl:all_reduce", 1, 1, 1, 1, "Float"]]},
        {"calls": [[True, "0", "nccl:all_reduce", 1, 1, 1, 1, "Float"]]},
        {"calls": [[1 << 70, "0", "nccl:all_reduce", 1, 1, 1, 1, "Float"]]},
        {"calls": [[1.5, "0", "nccl:all_reduce", 1, 1, 1, 1, "Float"]]},
        {"calls": [[1, "0", "n", 1, 1, 1, 1, "Float"]] * ((1 << 16) + 1)},
    ],
)
def test_what_the_agent_never_writes_is_not_believed(said: Any) -> None:
    assert notes_of({"rankscope_calls": said}) == []


def test_the_columns_survive_the_cache(make_event: Make, write_trace: Write) -> None:
    nccl = Nccl(make_event)
    nccl.batch(1000, "send 0->1", "recv 0<-3", number=7)
    info = {"rank": 0, "world_size": 4, "pg_config": GROUPS}
    path = write_trace(nccl.events, distributedInfo=info, rankscope_calls={"calls": nccl.notes})
    trace = read_trace(path)
    assert store_cached(path, trace)
    again = load_cached(path)
    assert again is not None
    assert again.collectives.pieces == trace.collectives.pieces
