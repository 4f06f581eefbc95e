"""What a rank costs whose slow kernels run beside communication."""

from __future__ import annotations

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.trace.files.load import load_traces
from support.worlds.catalogue import World, simulated
from support.worlds.faults import Fault


def test_norms_that_run_beside_a_gathering(tmp_path) -> None:
    """Twelve norms a step take 2.5 times as long on one rank: one runs alone, six never do on any rank. In the mean the
    rank's kernels that ran alone take 5 % longer, which says nothing of the six."""
    fault, norms = Fault("slow_norms", (2,), 2.5), (("norms_us", 150.0),)
    made = simulated(World("norms", "fsdp", 4, fault, shifted=(), sizes=norms))
    for rank, text in enumerate(made.texts):
        (tmp_path / f"rank_{rank}.json").write_text(text)
    found = analyze(load_traces([tmp_path], cache=False), hta=False).verdict
    assert (found.ranks, found.cause) == ([2], "slow_compute")
    assert found.cost_ms_per_step == pytest.approx(made.cost_ms, rel=0.05)
