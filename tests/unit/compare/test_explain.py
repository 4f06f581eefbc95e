"""Explanations of differences of real runs, and alignment of calls of different programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankscope.compare.compare import compare
from rankscope.compare.sides.side import Side, read_side
from rankscope.compare.template import Template, targets
from support.worlds.catalogue import World, simulated
from support.worlds.faults import Fault

CALL, OTHER = ("all_reduce", 2, 100), ("all_reduce", 2, 50)


def aligned(
    theirs: list[tuple[tuple[str, int, int], float]], ours: list[tuple[tuple[str, int, int], float]]
) -> list[float]:
    template = Template([key for key, _ in theirs], {"host": np.array([ms for _, ms in theirs])})
    found = targets(template, [key for key, _ in ours], {"host": np.array([ms for _, ms in ours])})
    return [float(value) for value in found["host"]]


def test_the_same_calls_get_the_other_runs_work() -> None:
    assert aligned([(CALL, 5), (OTHER, 7)], [(CALL, 1), (OTHER, 2)]) == [5, 7]


def test_work_before_a_call_that_is_gone_goes_to_the_next() -> None:
    assert aligned([(OTHER, 5), (CALL, 7)], [(CALL, 3)]) == [12]


def test_a_call_that_is_new_has_no_work_of_its_own() -> None:
    assert aligned([(CALL, 7)], [(OTHER, 4), (CALL, 3)]) == [0, 7]


def test_a_stretch_of_other_calls_is_shared_out_as_it_is_now() -> None:
    assert aligned([(CALL, 8)], [(OTHER, 1), (("broadcast", 2, 1), 3)]) == [2, 6]


@pytest.mark.parametrize(
    ("before", "after", "delta", "kind", "ms"),
    [
        ("ddp_healthy", "ddp_dataloader_stall", 60, "host", 60),  # 60 ms planted in the loader of rank 1
        ("ddp_dataloader_stall", "ddp_healthy", -60, "host", -60),
        ("ddp_healthy", "ddp_slow_gpu", 27, "device", 27),  # 250 products of matrices on rank 1, part of them hidden
    ],
)
def test_real_pairs(real, before: str, after: str, delta: float, kind: str, ms: float) -> None:
    diff = compare(real(before), real(after))
    assert diff.step.change == pytest.approx(delta, abs=3)
    parts = {part.kind: part for part in diff.parts}
    assert sum(part.ms for part in diff.parts) == pytest.approx(diff.step.change)
    assert parts[kind].ms == pytest.approx(ms, abs=3)
    assert abs(parts["unexplained"].ms) < 0.15 * abs(delta)
    assert max(parts[kind].ranks, key=lambda rank: abs(parts[kind].ranks[rank])) == "1"
    assert diff.verdict == ("slower" if delta > 0 else "faster")


def test_a_pipeline(tmp_path: Path) -> None:
    def recorded(name: str, fault: Fault | None) -> tuple[Side, float]:
        world = simulated(World(name, "pp", 2, fault, realistic=False, shifted=(), sizes=(("micro", 2),)))
        (tmp_path / name).mkdir()
        for rank, text in enumerate(world.texts):
            (tmp_path / name / f"rank_{rank}.json").write_text(text)
        return read_side(tmp_path / name), world.cost_ms

    healthy, _ = recorded("healthy", None)
    faulty, cost = recorded("faulty", Fault("slow_device", (1,), 1.5))
    diff = compare(healthy, faulty)
    assert cost > 1
    assert diff.step.change == pytest.approx(cost, rel=0.02)
    parts = {part.kind: part.ms for part in diff.parts}
    assert parts == pytest.approx({"device": cost, "host": 0, "transfer": 0, "unexplained": 0}, abs=0.02 * cost)
    assert max(diff.parts[0].ranks, key=diff.parts[0].ranks.__getitem__) == "1"


def test_parts_that_do_not_reach_the_other_run_are_not_significant(real) -> None:
    healthy = real("ddp_healthy")
    # the steps stay as they are, so that these transfers contradict them
    ranks = [
        replace(own, calls=replace(own.calls, transfer_ns=[100 * ns for ns in own.calls.transfer_ns]))
        for own in healthy.ranks
    ]
    diff = compare(replace(healthy, ranks=ranks), healthy)
    assert diff.parts == []
    assert any("with the work of ddp_healthy a step of ddp_healthy would take" in note for note in diff.notes)


def test_the_new_operator_is_the_first_row_and_nothing_is_slower(real) -> None:
    diff = compare(real("ddp_healthy"), real("ddp_slow_gpu"))
    kernels = [row for row in diff.told if row.kind == "kernel"]
    assert (kernels[0].name, kernels[0].status) == ("aten::mm [[4096,4096],[4096,4096]]", "new")
    assert all(row.status == "new" or abs(row.change or 0) < 0.2 for row in kernels)


def test_the_stall_is_no_slower_kernel(real) -> None:
    diff = compare(real("ddp_healthy"), real("ddp_dataloader_stall"))
    assert [row.name for row in diff.told if row.kind in {"kernel", "count"} and abs(row.change or 0) > 0.2] == []
    (wait,) = [row for row in diff.rows if row.kind == "wait"]
    assert wait.ranks == [0]


def test_the_promise_of_the_older_report_was_kept(real) -> None:
    (promise,) = compare(real("ddp_dataloader_stall"), real("ddp_healthy")).promises
    assert promise.kept
    assert "input_stall on rank 1" in promise.text


def test_healthy_against_itself_and_without_a_device(real) -> None:
    diff = compare(real("gloo_ddp_none"), real("gloo_ddp_none"))
    assert (diff.verdict, diff.told, diff.step.change) == ("same", [], 0.0)
