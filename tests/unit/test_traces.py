"""Traces as tables: the numbers are those of the report, and of the files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rankscope
from rankscope import errors

RUN = Path(__file__).parents[1] / "data" / "runs" / "ddp_input"


@pytest.fixture(scope="module")
def traces() -> rankscope.Traces:
    return rankscope.load_traces(RUN, cache=False)


def test_ranks_are_told_apart(traces: rankscope.Traces) -> None:
    """The run recorded six steps (see its run.json) on two ranks."""
    assert (traces.ranks, len(traces)) == ([0, 1], 2)
    assert [one.ranks for one in traces] == [[0], [1]]
    assert repr(traces).startswith("2 traces of 2 ranks in 1 window, ")
    assert traces.rank(1).events.num_rows + traces.rank(0).events.num_rows == traces.events.num_rows
    assert {"events", "to_perfetto", "sources"} <= set(dir(traces))
    with pytest.raises(KeyError, match=r"no trace of rank 7; there are those of rank 0, 1"):
        traces.rank(7)


def test_a_path_that_is_none_is_told() -> None:
    assert repr(rankscope.load_traces("nowhere")) == "no trace: nowhere: no such file or folder"
    with pytest.raises(errors.AnalysisError, match=r"nowhere: no such file or folder"):
        rankscope.load("nowhere")
    with pytest.raises(AttributeError, match=r"did you mean 'analyze'\?"):
        rankscope.analyse  # noqa: B018


def test_steps_and_meta(traces: rankscope.Traces) -> None:
    steps = traces.steps
    assert list(steps.columns) == ["attempt", "window", "rank", "step", "start", "duration"]
    numbers = traces.traces[0].steps.number.tolist()
    assert steps[steps["rank"] == 1].step.tolist() == numbers
    assert traces.meta["steps"].tolist() == [len(numbers)] * 2
    assert traces.meta.world_size.tolist() == [2, 2]
    assert traces.meta.offset_ns.notna().all()


def test_collectives_are_the_same_call_on_both_ranks(traces: rankscope.Traces) -> None:
    calls = traces.collectives
    both = calls.groupby("call")
    assert (both["rank"].nunique() == 2).all()
    assert (both["kind"].nunique() == 1).all()
    # whoever came last does not wait, and the other one for as long as it came earlier
    first, last = (both["start"].min(), both["start"].max())
    waited = both["wait"].max()
    assert (waited <= last - first).all()
    assert (both["wait"].min() == 0).all()
    assert traces.rank(1).collectives.equals(calls[calls["rank"] == 1].reset_index(drop=True))


def test_on_the_common_clock_a_rank_is_moved_by_its_offset(traces: rankscope.Traces) -> None:
    own, common = traces.events.to_pandas(), traces.aligned().to_pandas()
    assert common.drop(columns="start").equals(own.drop(columns="start"))
    offset = dict(zip(traces.meta["rank"], traces.meta.offset_ns, strict=True))
    for rank in (0, 1):
        moved = (common.start - own.start)[own["rank"] == rank]
        assert np.abs(moved - offset[rank]).max() < 1e6, "a drift within a window of a second"
    assert rankscope.load(RUN, cache=False, aligned=True).num_rows == len(own)


def test_for_perfetto(traces: rankscope.Traces, tmp_path: Path) -> None:
    import gzip

    path = traces.rank(1).to_perfetto(tmp_path / "one.json.gz", steps=(13, 13))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert {event["name"] for event in events if event.get("name", "").startswith("step ")} == {"step 13"}
    with pytest.raises(errors.RunDirError, match="exists already"):
        traces.to_perfetto(path)


def test_for_holistic_trace_analysis() -> None:
    pytest.importorskip("hta")
    analysis = rankscope.load_traces(RUN.parents[1] / "traces" / "ddp_healthy", cache=False).to_hta()
    assert sorted(analysis.t.traces) == [0, 1]


def test_a_report_is_made_of_them(traces: rankscope.Traces) -> None:
    report = rankscope.analyze(traces, rankscope.read_manifest(RUN), hta=False)
    assert report.verdict.ranks == [1]
    assert float(report.saves) == report.verdict.cost_ms_per_step
