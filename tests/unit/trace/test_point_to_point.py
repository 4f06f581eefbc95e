"""Peers of sends and receives, and the records of a coalesced launch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.trace.columns import Piece, RankTrace
from rankscope.trace.files.cache import load_cached, store_cached
from rankscope.trace.files.load import load_traces
from rankscope.trace.kineto.build import read_trace
from rankscope.trace.peers import CONTRADICTORY, PLACE, RANK, UNCLEAR, numbering, resolved

Write = Callable[..., Path]
Make = Callable[..., dict[str, Any]]
KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
Say = tuple[str, int]
GROUP = {"In msg nelems": 8, "Out msg nelems": 8, "Process Group Name": "1"}


def config(rank: int, ranks: list[int], world: int = 8) -> dict[str, Any]:
    group = {"pg_name": "1", "pg_desc": "pp", "ranks": ranks}
    return {"distributedInfo": {"rank": rank, "world_size": world, "pg_config": [group]}}


class Host:
    """Events of one thread that issues sends and receives, written one after the other."""

    def __init__(self, make: Make) -> None:
        self.make, self.now, self.events = make, 0, list[dict[str, Any]]()
        self.correlation = 0

    def host(self, length: int, cat: str, name: str, **args: Any) -> None:
        self.events.append(self.make(self.now, length, cat=cat, name=name, pid=1, tid=1, args=args))

    def record(self, kind: str, peer: int, *, elements: int = 8, **more: Any) -> None:
        where = {"Dst Rank": peer} if kind == "send" else {"Src Rank": peer} if kind == "recv" else {}
        sizes = {"In msg nelems": elements, "Out msg nelems": elements, "Process Group Name": "1"}
        self.host(4, "cpu_op", "record_param_comms", **{"Collective name": kind, **where, **sizes, **more})
        self.now += 5

    def launch(self) -> None:
        self.correlation += 1
        self.host(2, "cuda_driver", "cuLaunchKernelEx", correlation=self.correlation)
        args = {"stream": 9, "correlation": self.correlation}
        self.events.append(self.make(1000 + self.now, 3, name=KERNEL, args=args))
        self.now += 3

    def group(self, *said: Say, kernels: int = 1, annotated: bool = True) -> None:
        for kind, peer in said:
            self.record(kind, peer)
        if annotated:
            self.host(20, "user_annotation", "nccl:coalesced")
        self.now += 1
        for _ in range(kernels):
            self.launch()
        self.now += 30


def read(write: Write, host: Host, rank: int = 1, ranks: list[int] | None = None) -> RankTrace:
    return read_trace(write(host.events, **config(rank, ranks or [0, 1, 2, 3])))


def peers(trace: RankTrace) -> list[list[Say]]:
    return [[("send" if p.sends else "recv", p.peer) for p in pieces] for pieces in trace.collectives.pieces]


@pytest.mark.parametrize("annotated", [True, False])
def test_a_coalesced_launch_stands_for_what_was_issued_before_it(
    write_trace: Write, make_event: Make, annotated: bool
) -> None:
    host = Host(make_event)
    host.group(("send", 2), annotated=annotated)
    host.group(("send", 2), ("recv", 2), annotated=annotated)
    host.group(("send", 2), ("recv", 0), annotated=annotated)  # a ring
    host.group(("recv", 0), ("recv", 0), annotated=annotated)
    host.record("wait", 0)
    trace = read(write_trace, host)
    calls = trace.collectives
    ring = [("send", 2), ("recv", 0)]
    assert peers(trace) == [[("send", 2)], [("send", 2), ("recv", 2)], ring, [("recv", 0)] * 2]
    assert (calls.kind, calls.peer.tolist()) == (["send", "sendrecv", "sendrecv", "recv"], [2, 2, -1, 0])
    assert (calls.in_elements.tolist(), calls.out_elements.tolist()) == ([8, 8, 8, 0], [8, 8, 8, 16])
    assert [trace.groups[g].ranks for g in calls.group.tolist()] == [(0, 1, 2, 3)] * 4


def test_records_of_the_same_microsecond_as_the_end_of_their_group(write_trace: Write, make_event: Make) -> None:
    """Whole microseconds: the last record seems to begin together with the annotation."""
    host = Host(make_event)
    for _ in range(3):
        host.record("send", 2)
        host.host(0, "cpu_op", "record_param_comms", **{"Collective name": "recv", "Src Rank": 0, **GROUP})
        host.host(20, "user_annotation", "nccl:coalesced")
        host.now += 1
        host.launch()
        host.now += 30
    assert [sorted(pieces) for pieces in peers(read(write_trace, host))] == [[("recv", 0), ("send", 2)]] * 3


def test_all_kernels_of_a_group_stand_for_the_same(write_trace: Write, make_event: Make) -> None:
    host = Host(make_event)
    host.group(("send", 2), ("recv", 0), kernels=3)
    assert peers(read(write_trace, host)) == [[("send", 2), ("recv", 0)]] * 3


def test_a_record_with_a_launch_of_its_own_is_no_piece(write_trace: Write, make_event: Make) -> None:
    """Even where its kernel was lost."""
    host = Host(make_event)
    host.record("send", 0)
    host.now -= 3
    host.launch()
    host.events.pop()
    host.now += 10
    host.group(("send", 2))
    assert peers(read(write_trace, host)) == [[("send", 2)]]


def test_a_kernel_before_which_nothing_was_recorded_stays_unknown(write_trace: Write, make_event: Make) -> None:
    host = Host(make_event)
    host.group()
    host.group(("send", 2))
    host.group()
    trace = read(write_trace, host)
    assert peers(trace) == [[], [("send", 2)], []]
    assert (trace.collectives.kind, trace.collectives.peer.tolist()) == (["sendrecv", "send", "sendrecv"], [-1, 2, -1])


def test_records_of_another_thread_are_no_pieces(write_trace: Write, make_event: Make) -> None:
    host = Host(make_event)
    host.record("recv", 0)
    host.events[-1]["tid"] = 2
    host.group(("send", 2))
    assert peers(read(write_trace, host)) == [[("send", 2)]]


def test_coalesced_collectives_are_one_call_of_their_kind(write_trace: Write, make_event: Make) -> None:
    host = Host(make_event)
    for _ in range(3):
        host.record("_allgather_base", -1)
    host.group()
    calls = read(write_trace, host).collectives
    assert (calls.kind, calls.in_elements.tolist(), calls.pieces) == (["_allgather_base"], [24], [()])


def test_the_annotation_around_a_launch_names_places_within_the_group(write_trace: Write, make_event: Make) -> None:
    host = Host(make_event)
    host.host(20, "user_annotation", "nccl:recv 1<-0")
    host.launch()
    trace = read(write_trace, host, rank=5, ranks=[4, 5, 6])
    assert (trace.collectives.kind, trace.collectives.peer.tolist()) == (["recv"], [4])


EVEN = (0, 2, 4, 6)


@pytest.mark.parametrize(
    ("said", "own", "how"),
    [
        ([(EVEN, 1, -1)], 0, PLACE),  # 1 is no member
        ([(EVEN, 6, -1)], 4, RANK),  # there is no place 6
        ([(EVEN, 2, -1)], 2, PLACE),  # nobody sends to himself
        ([(EVEN, 2, -1)], 4, RANK),  # 4 stands at place 2
        ([(EVEN, 2, -1)], 6, UNCLEAR),
        ([(EVEN, 2, 1)], 6, RANK),  # the place is given, too
        ([(EVEN, 2, 2)], 6, PLACE),
        ([(EVEN, 1, -1), (EVEN, 6, -1)], 0, CONTRADICTORY),
        ([((0, 1, 2), 1, -1)], 0, ""),  # no difference
        ([((), 1, -1)], 0, ""),
        ([(EVEN, 17, -1)], 0, UNCLEAR),  # neither
    ],
)
def test_evidence_of_how_peers_are_numbered(said: list[tuple[tuple[int, ...], int, int]], own: int, how: str) -> None:
    assert numbering(said, own) == how


def test_what_a_number_means() -> None:
    assert [resolved(EVEN, n, -1, PLACE) for n in (0, 1, 3, 4)] == [0, 2, 6, -1]
    assert [resolved(EVEN, n, -1, RANK) for n in (0, 2, 6)] == [0, 2, 6]
    assert [resolved(EVEN, n, -1, CONTRADICTORY) for n in (1, 6, 2, 17)] == [2, 6, -1, -1]
    assert resolved(EVEN, -1, 3, UNCLEAR) == 6
    assert resolved((), -1, 3, "") == -1


def test_ranks_learn_from_each_other_how_peers_are_numbered(
    tmp_path: Path, write_trace: Write, make_event: Make
) -> None:
    """Places: rank 0 sends to place 1 (sure), rank 6 receives from place 2 (rank 2 or rank 4: learnt)."""
    for rank, kind, number in ((6, "recv", 2), (0, "send", 1)):
        host = Host(make_event)
        host.group((kind, number))
        write_trace(host.events, **config(rank, list(EVEN))).rename(tmp_path / f"rank_{rank}.json")
    found = load_traces([tmp_path / "rank_0.json", tmp_path / "rank_6.json"], workers=1, cache=False).traces
    assert [peers(t) for t in found] == [[[("send", 2)]], [[("recv", 4)]]]
    assert [t.collectives.peer.tolist() for t in found] == [[2], [4]]
    assert any("as other ranks show" in note for note in found[1].notes)


def test_pieces_come_back_from_the_cache(write_trace: Write, make_event: Make) -> None:
    host = Host(make_event)
    host.group(("send", 2), ("recv", 0))
    host.group()
    path = write_trace(host.events, **config(1, [0, 1, 2, 3]))
    trace = read_trace(path)
    assert store_cached(path, trace)
    again = load_cached(path)
    assert again is not None
    assert again.collectives.pieces == trace.collectives.pieces == [(Piece(True, 2, 8), Piece(False, 0, 8)), ()]
