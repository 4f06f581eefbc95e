"""Largest gain of each piece of advice, from hand-made evidence."""

from __future__ import annotations

import pytest

from rankscope.diagnose.advice.kernels.fused_optimizer import ADVICE
from rankscope.diagnose.rules.table import open_case
from rankscope.records.evidence import Evidence
from rankscope.records.rows import Efficiency, WorkGroup


@pytest.mark.parametrize(
    ("device_ms", "host_ms", "gain_ms"),
    [
        (6.0, 4.0, 6.0),  # the device limits the job: 6 ms of its time
        (0.5, 40.0, 10.0),  # the host does: 50 of 200 kernels are a quarter of its 40 ms
        (0.5, 1.0, None),  # less than one per cent of the step
    ],
)
def test_a_fused_optimizer(device_ms, host_ms, gain_ms) -> None:
    group = WorkGroup(name="optimizer", ms_per_step=1.0, kernels_per_step=50.0)
    evidence = Evidence(
        ranks=[0, 1], steps=6, step_ms=100.0, calls=60, matched_pct=100.0, launches=200.0, host_gain_ms=host_ms,
        uses=["foreach_optimizer"], work_gains={"optimizer": device_ms},
        efficiency=Efficiency(
            device="Chip", peak_tflops=None, peak_gb_s=None, shapes=False, tflop_per_step=None, tflops=None,
            peak_pct=None, counted_pct=0.0, plain_ms=0.0, small_kernels=0.0, small_ms=0.0, compiled=False, graphs=False,
            groups=[group],
        ),
    )  # fmt: skip
    found = ADVICE.find(open_case(evidence))
    assert [(a.code, a.kind, a.saves_ms) for a in found] == (
        [("fused_optimizer", "bound", gain_ms)] if gain_ms is not None else []
    )
