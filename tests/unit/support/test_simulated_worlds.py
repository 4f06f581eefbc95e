"""The simulator of support.worlds, compared with times calculated by hand."""

from __future__ import annotations

import json

import pytest

from support.worlds.catalogue import RECORDED, World, faults, healthy, simulated
from support.worlds.engine import CALL, GAP, LAUNCH, US, Effects, Op, run
from support.worlds.faults import Fault, changed
from support.worlds.jobs import Mesh, build

CALM = Effects(jitter=0)
BEGIN = 1_000_000
"""When every host begins."""


def kernel(us: int, key: int = 0) -> Op:
    return Op("kernel", key=key, name="mm", host=10 * US, device=us * US)


def call(us: int, group: tuple[int, ...] = (0, 1), key: int = 1) -> Op:
    return Op(
        "call",
        key=key,
        host=10 * US,
        device=us * US,
        stream="nccl",
        group=group,
        axis="dp",
        kind="allreduce",
        label="a",
    )


def test_a_collective_ends_a_transfer_after_the_last_arrival() -> None:
    """GIVEN rank 1 with a kernel of 300 us and rank 0 with one of 100 us before a call of 50 us
    THEN both end when rank 1 arrived plus 50 us."""
    done = run(lambda rank, step: [kernel(300 if rank else 100), call(50)], 2, 1, CALM, 0)
    late = BEGIN + 10 * US + LAUNCH + 300 * US + GAP
    assert [rank[1].stop for rank in done.ranks] == [late + 50 * US] * 2
    assert done.ranks[0][1].start == BEGIN + 10 * US + LAUNCH + 100 * US + GAP


def test_a_synchronisation_holds_the_host_and_a_join_the_stream() -> None:
    """GIVEN a call that is joined before a second kernel, and a sync at the end
    THEN the kernel starts after the call, and the host goes on 3 us after the kernel ended."""
    ops = [call(50, key=0), Op("join", key=1, label="a"), kernel(20, key=2), Op("sync", key=3)]
    done = run(lambda rank, step: ops, 2, 1, CALM, 0)
    ended = BEGIN + 10 * US + LAUNCH + 50 * US
    assert done.ranks[0][2].start == ended + GAP
    assert done.ranks[0][3].end == ended + GAP + 20 * US + 3 * US


def test_a_send_waits_for_its_receiver() -> None:
    def program(rank: int, step: int) -> list[Op]:
        kind = "recv" if rank else "send"
        pair = Op("pair", key=1, device=30 * US, stream="p2p", group=(0, 1), axis="pp", kind=kind, peer=1 - rank)
        return [Op("host", host=500 * US * rank), pair]

    done = run(program, 2, 1, CALM, 0)
    assert done.ranks[0][1].stop == done.ranks[1][1].stop == BEGIN + 500 * US + LAUNCH + 30 * US


def test_a_ring_holds_up_neighbours_only() -> None:
    """GIVEN four ranks, of which rank 0 comes 1 ms late THEN ranks 1 and 3 end late, rank 2 does not."""

    def program(rank: int, step: int) -> list[Op]:
        ring = Op("ring", key=1, device=40 * US, stream="r", group=(0, 1, 2, 3), axis="cp", kind="ring")
        return [Op("host", host=1000 * US if rank == 0 else 0), ring]

    stops = [rank[1].stop for rank in run(program, 4, 1, CALM, 0).ranks]
    early, late = BEGIN + LAUNCH + 40 * US, BEGIN + 1000 * US + LAUNCH + 40 * US
    assert stops == [late, late, early, late]


def test_a_kernel_beside_communication_runs_slower() -> None:
    """GIVEN a kernel of 100 us issued 14 us after a call of 50 us, slowed by 1.5 while the call runs
    THEN of the 36 us that the call has left the kernel does 24, and the other 76 us after it."""
    effects = Effects(beside=1.5, jitter=0)
    done = run(lambda rank, step: [call(50, key=0), kernel(100, key=1)], 2, 1, effects, 0)
    alone, slowed = 76 * US, 36 * US
    ran = done.ranks[0][1]
    assert done.ranks[0][0].stop - ran.start == slowed
    assert ran.stop - ran.start == slowed + alone
    assert CALL == 4 * US


def test_noise_is_the_same_with_and_without_a_fault() -> None:
    """GIVEN a fault that adds an operation in rank 1 THEN rank 0's own times do not change in any step."""
    mesh, steps = build("ddp", 2)
    fault = Fault("pause", (1,), 5)
    lengths = []
    for planted in (fault, None):

        def program(rank: int, step: int, planted: Fault | None = planted) -> list[Op]:
            return list(steps[rank]) if planted is None else changed(steps[rank], planted, rank, step, 4)

        done = run(program, mesh.size, 4, Effects(noise=0.02), 3)
        lengths.append([ran.stop - ran.start for ran in done.ranks[0] if ran.op.what == "kernel"])
    assert lengths[0] == lengths[1]


def test_programs_that_wait_for_each_other_are_reported() -> None:
    def program(rank: int, step: int) -> list[Op]:
        return [call(1)] if rank == 0 else []

    with pytest.raises(RuntimeError, match=r"ranks \[0\] wait for each other"):
        run(program, 2, 1, CALM, 0)


def test_groups_of_a_mesh() -> None:
    """Rank 5 of a mesh (dp 2) x (tp 4) is replica 1, shard 1."""
    mesh = Mesh(("dp", "tp"), (2, 4))
    assert (mesh.place(5, "dp"), mesh.place(5, "tp")) == (1, 1)
    assert mesh.group(5, "dp") == (1, 5)
    assert mesh.group(5, "tp") == (4, 5, 6, 7)


def test_the_truth_of_a_late_input() -> None:
    """GIVEN an input of 4 ms more in a job without noise, whose other ranks have nothing else to wait for
    THEN it costs 4 ms of each step."""
    world = World("by-hand", "fsdp", 4, Fault("input", (2,), 4.0), realistic=False)
    made = simulated(world)
    assert made.cost_ms == pytest.approx(4.0, abs=0.05)
    trace = json.loads(made.texts[2])
    inputs = [e["dur"] for e in trace["traceEvents"] if "DataLoader" in e["name"]]
    assert len(inputs) == RECORDED
    assert all(dur > 4000 for dur in inputs)


def test_the_catalogue_is_whole() -> None:
    worlds = faults(realistic=True)
    assert len(worlds) == 87
    assert len({world.name for world in worlds}) == 87
    assert len(healthy(realistic=True)) == 64
