"""Where the arguments of a communication call are found, and which group it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.trace.columns import Group, RankTrace
from rankscope.trace.kineto.build import read_trace

Write = Callable[..., Path]
Make = Callable[..., dict[str, Any]]
RING = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SAID = {
    "Collective name": "allreduce",
    "Process Group Name": "2",
    "Process Group Description": "mesh_dp",
    "Process Group Ranks": "[0, 4]",
    "In msg nelems": 10,
    "Out msg nelems": 20,
    "dtype": "Float",
    "Seq": 5,
    "Comms Id": 77,
}


def config(*groups: tuple[str, str, list[int]]) -> dict[str, Any]:
    listed = [{"pg_name": n, "pg_desc": d, "ranks": r} for n, d, r in groups]
    return {"distributedInfo": {"rank": 0, "world_size": 64, "pg_config": listed}}


def groups_of(trace: RankTrace) -> list[Group | None]:
    return [trace.groups[g] if g >= 0 else None for g in trace.collectives.group.tolist()]


@pytest.mark.parametrize("place", ["kernel", "external id", "enclosing"])
def test_where_arguments_stand(write_trace: Write, make_event: Make, place: str) -> None:
    kernel_args = {"stream": 9, "correlation": 3} | (SAID if place == "kernel" else {})
    launch_args = {"correlation": 3} | ({"External id": 8} if place == "external id" else {})
    operator_args = ({} if place == "kernel" else SAID) | ({"External id": 8} if place == "external id" else {})
    sent = [
        make_event(0, 50, cat="cpu_op", name="record_param_comms", pid=1, tid=1, args=operator_args),
        make_event(10, 5, cat="cuda_runtime", name="cudaLaunchKernelExC", pid=1, tid=1, args=launch_args),
        make_event(60, 40, name=RING, args=kernel_args),
        make_event(70, 40, name="gemm", args=kernel_args | {"stream": 7}),
    ]
    trace = read_trace(write_trace(sent))
    calls = trace.collectives
    assert [trace.strings[trace.events.name[i]] for i in calls.event.tolist()] == [RING]
    assert calls.kind == ["allreduce"]
    assert groups_of(trace) == [Group("2", "mesh_dp", (0, 4))]
    assert (calls.seq.tolist(), calls.comms_id, calls.dtype) == ([5], ["77"], ["Float"])
    assert (calls.in_elements.tolist(), calls.out_elements.tolist(), calls.peer.tolist()) == ([10], [20], [-1])


@pytest.mark.parametrize("said", ["[0, 1, 2, ...]", None, "nonsense", [0, "x"]])
def test_ranks_cut_off_are_taken_from_the_configuration(write_trace: Write, make_event: Make, said: Any) -> None:
    args = SAID | {"Process Group Ranks": said, "stream": 9}
    top = config(("0", "default_pg", list(range(64))), ("2", "mesh_dp", list(range(0, 64, 2))))
    trace = read_trace(write_trace([make_event(0, 1, name=RING, args=args)], **top))
    assert groups_of(trace) == [Group("2", "mesh_dp", tuple(range(0, 64, 2)))]
    assert {g.name for g in trace.groups} == {"0", "2"}


def test_a_rank_in_one_group_needs_no_arguments(write_trace: Write, make_event: Make) -> None:
    sent = [make_event(0, 1, name=RING), make_event(5, 1, name="ncclDevKernel_ReduceScatter_Sum_f32_RING_LL")]
    one = read_trace(write_trace(sent, **config(("0", "default_pg", [0, 1]))))
    assert groups_of(one) == [Group("0", "default_pg", (0, 1))] * 2
    assert one.collectives.kind == ["allreduce", "reduce_scatter"]
    assert one.collectives.seq.tolist() == [-1, -1]
    two = read_trace(write_trace(sent, **config(("0", "default_pg", [0, 1]), ("1", "tp", [0, 1]))))
    assert groups_of(two) == [None, None]


def test_sends_and_receives_name_their_peer(write_trace: Write, make_event: Make) -> None:
    sent = [
        make_event(0, 1, name="ncclDevKernel_SendRecv", args={"stream": 9, "Collective name": "send", "Dst Rank": 3}),
        make_event(5, 1, name="ncclDevKernel_SendRecv", args={"stream": 9, "Collective name": "recv", "Src Rank": 2}),
    ]
    calls = read_trace(write_trace(sent)).collectives
    assert (calls.kind, calls.peer.tolist()) == (["send", "recv"], [3, 2])


def test_gloo_with_nested_arguments(write_trace: Write, make_event: Make) -> None:
    def host(ts: int, dur: int, name: str, tid: int = 5, **args: Any) -> dict[str, Any]:
        return make_event(ts, dur, cat="user_annotation", name=name, pid=1, tid=tid, args=args)

    sent = [
        host(0, 50, "gloo:all_reduce"),
        host(10, 5, "record_param_comms", **SAID),
        host(100, 50, "gloo:all_gather"),
        host(200, 50, "nccl:broadcast"),  # only enqueues: not a call of a CPU-only trace
    ]
    trace = read_trace(write_trace(sent))
    assert trace.collectives.kind == ["allreduce", "allgather"]
    assert groups_of(trace) == [Group("2", "mesh_dp", (0, 4)), None]
    assert not trace.has_device


def test_kernels_of_the_warm_up_are_of_the_kind_of_their_twins(write_trace: Write, make_event: Make) -> None:
    gather, sendrecv = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_SendRecv"
    sent = [make_event(i, 1, name=name, args={"stream": 9}) for i, name in enumerate((gather, sendrecv))]
    for i, (name, kind) in enumerate([(gather, "_allgather_base"), (sendrecv, "send"), (sendrecv, "recv")]):
        sent.append(make_event(10 + i, 1, name=name, args={"stream": 9, "Collective name": kind}))
    calls = read_trace(write_trace(sent)).collectives
    assert calls.kind == ["_allgather_base", "sendrecv", "_allgather_base", "send", "recv"]


@pytest.mark.parametrize("place", ["kernel", "external id", "launch"])
def test_what_a_record_launched_is_communication_whatever_it_is_called(
    write_trace: Write, make_event: Make, place: str
) -> None:
    record = make_event(0, 50, cat="cpu_op", name="record_param_comms", pid=1, tid=1, args=SAID | {"External id": 8})
    launch = {"correlation": 3, "External id": 8 if place == "launch" else 4}
    own = SAID if place == "kernel" else {"External id": 8} if place == "external id" else {}
    sent = [
        record,
        make_event(10, 5, cat="cuda_runtime", name="cudaLaunchKernel", pid=1, tid=1, args=launch),
        make_event(60, 40, name="void new_library::exchange<4>(int)", args={"stream": 9, "correlation": 3} | own),
    ]
    trace = read_trace(write_trace(sent))
    assert (trace.collectives.kind, trace.collectives.seq.tolist()) == (["allreduce"], [5])


def test_copies_of_a_record_are_the_call_but_those_of_its_set_up(write_trace: Write, make_event: Make) -> None:
    record = make_event(0, 50, cat="cpu_op", name="record_param_comms", pid=1, tid=1, args=SAID | {"External id": 8})
    args = {"stream": 9, "External id": 8}
    names = ["Memcpy PtoP (Device -> Device)", "Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pageable -> Device)"]
    sent = [record, *(make_event(60 + 9 * i, 5, cat="gpu_memcpy", name=n, args=args) for i, n in enumerate(names))]
    trace = read_trace(write_trace(sent))
    assert [trace.strings[trace.events.name[i]] for i in trace.collectives.event.tolist()] == names[:2]
