"""A stage that does not wait for its sends can run ahead of its neighbours, also in a replay."""

from __future__ import annotations

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.replay.unawaited_sends import overtake_sends
from rankscope.trace.files.load import load_traces
from support.worlds.catalogue import World, simulated
from support.worlds.faults import Fault

from .worlds import Mesh, pipeline, simulate


def test_what_a_slow_stage_costs_where_receives_are_posted_ahead(tmp_path) -> None:
    """Without the fault the others receive in time, and compute while their last message is on its way. If they waited
    for it, 240 us, the cost would be 4 % less."""
    fault, sizes = Fault("slow_device", (3,), 1.3), (("posted_ahead", True), ("message_us", 240))
    made = simulated(World("ahead", "pp", 4, fault, realistic=False, shifted=(), sizes=sizes))
    for rank, text in enumerate(made.texts):
        (tmp_path / f"rank_{rank}.json").write_text(text)
    loaded = load_traces([tmp_path], cache=False)
    assert overtake_sends([make_view(trace, trace.rank or 0) for trace in loaded.traces])
    found = analyze(loaded, hta=False).verdict
    assert found.ranks == [3]
    assert found.cost_ms_per_step == pytest.approx(made.cost_ms, rel=0.01)


def test_a_stage_that_waits_for_its_sends() -> None:
    """Here compute waits for all messages, sent ones too."""
    assert not overtake_sends([make_view(t, t.rank) for t in simulate(pipeline(4), Mesh(pp=4))])
