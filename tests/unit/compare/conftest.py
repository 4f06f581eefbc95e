"""Runs to compare: hand-made ones, and real ones that are read once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.compare.sides.side import Side, read_side
from rankscope.records.rank_window import CallColumns, RankWindow, StepColumns, WorkColumns
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, RunInfo, Verdict

DATA = Path(__file__).parents[2] / "data" / "traces"
STEPS = 4
KERNELS = {"mm": (10, 500.0), "norm": (20, 50.0), "adam": (1, 1000.0)}
"""Operator -> kernels a step, us each: 5, 1 and 1 ms."""


@pytest.fixture(scope="session")
def real() -> Callable[[str], Side]:
    """A run of tests/data/traces."""
    return cache(lambda name: read_side(DATA / name))


def report(**verdict: Any) -> ClusterReport:
    return ClusterReport(
        run=RunInfo(source="traces", world_size=2, devices=["Chip"], versions={"torch": "2.11"}),
        ranks=[],
        clock=ClockReport(method="none"),
        collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
        verdict=Verdict(**{"kind": "balanced", "sentence": "Nothing.", **verdict}),
    )


def rank_window(
    rank: int,
    kernels: dict[str, tuple[int, float]],
    *,
    alone: bool = True,
    transfer_us: float = 100.0,
    steps: dict[str, list[int]] | None = None,
) -> RankWindow:
    """A rank with the same kernels in each of its steps, and an all-reduce of 4 MB whose transfer takes 100 us."""
    strings = [*kernels, "all_reduce", "float"]
    work = WorkColumns()
    for name, (count, us) in kernels.items():
        for step in range(STEPS):
            total = round(count * us * 1e3)
            values = (
                strings.index(name),
                -1,
                -1,
                step,
                count,
                total,
                count * alone,
                total * alone,
                round(us * 1e3) * alone,
            )
            for column, value in zip(vars(work).values(), values, strict=False):
                column.append(value)
    calls = CallColumns(
        kind=[len(kernels)] * STEPS,
        group=[-1] * STEPS,
        size=[2] * STEPS,
        dtype=[len(kernels) + 1] * STEPS,
        bytes=[4_000_000] * STEPS,
        bus_bytes=[4_000_000] * STEPS,
        step=list(range(STEPS)),
        wait_ns=[0] * STEPS,
        transfer_ns=[round(transfer_us * 1e3)] * STEPS,
    )
    values: dict[str, list[int]] = {name: [0] * STEPS for name in vars(StepColumns())}
    values["number"] = list(range(STEPS))
    values["launches"] = [sum(count for count, _ in kernels.values()) + 1] * STEPS
    values["length_ns"] = [20_000_000 + 10_000 * (step % 2) for step in range(STEPS)]
    values["compute_ns"] = [round(sum(count * us for count, us in kernels.values()) * 1e3)] * STEPS
    return RankWindow(
        rank=rank,
        attempt=0,
        window=0,
        device="Chip",
        strings=strings,
        steps=StepColumns(**{**values, **(steps or {})}),
        work=work,
        calls=calls,
    )


@pytest.fixture
def make_side() -> Callable[..., Side]:
    """A run of two ranks; what is given is of rank 1 alone."""

    def make(
        kernels: dict[str, tuple[int, float]] | None = None, *, step_ms: list[float] | None = None, **of_rank: Any
    ) -> Side:
        ranks = [rank_window(0, KERNELS), rank_window(1, {**KERNELS, **(kernels or {})}, **of_rank)]
        return Side("run", report(), ranks, np.array(step_ms or [], np.float64))

    return make
