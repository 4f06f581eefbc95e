"""The replay graph: hand-made, unchanged, and with inserted faults of known size."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rankscope.analysis.replay import builder as builder_module
from rankscope.analysis.replay import longest_path
from rankscope.analysis.replay.build import begins
from rankscope.analysis.replay.builder import Builder, _sorted
from rankscope.analysis.replay.collective_nodes import END, HOST, JOINED, START
from rankscope.analysis.replay.critical_path import Part, critical_path
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.longest_path import Levels, by_node, level_of
from rankscope.analysis.replay.streams import without_rounding
from rankscope.analysis.stragglers.cost import sign_flip
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.analysis.windows.replay import MAX_REPLAY_ERROR
from rankscope.statistics.grouping import ranges


def test_a_node_happens_at_the_latest_of_its_edges() -> None:
    builder = Builder()
    start = builder.nodes(0.0, 1, fixed=True)
    launch = builder.nodes(10.0, 1)
    other = builder.nodes(4.0, 2)
    joined = builder.nodes(30.0, 3)
    builder.edges(launch, start, 0.0, 10.0, Work.HOST, 0, 0)
    builder.edges(other, start, 4.0)
    builder.edges(joined, launch, 20.0)
    builder.edges(joined, other, 0.0, 5.0, Work.DEVICE, 1, 0)
    graph = builder.finish(joined)
    assert graph.replay().tolist() == [0.0, 4.0, 10.0, 30.0]
    work = graph.work.copy()
    work[graph.label == Work.HOST] = 2.0
    assert graph.replay(work)[graph.ends[0]] == 22.0
    work[graph.label == Work.HOST] = 0.0
    work[graph.label == Work.DEVICE] = 40.0
    assert graph.replay(work)[graph.ends[0]] == 44.0


def test_the_critical_path_passes_to_the_rank_that_comes_last() -> None:
    """Rank 0: 10 of host, 20 of device. Rank 1: 40 of host, 2 to launch, 5 of device. Then a call of 3 on both."""
    builder = Builder()
    start = builder.nodes([0.0, 0.0], HOST, fixed=True)
    launch = builder.nodes([10.0, 40.0], HOST)
    kernel = builder.nodes([10.0, 42.0], START)
    arrival = builder.nodes([30.0, 47.0], START)
    joined = builder.nodes(47.0, JOINED)
    end = builder.nodes([50.0, 50.0], END)
    builder.edges(launch, start, 0.0, [10.0, 40.0], Work.HOST, [0, 1], 0)
    builder.edges(kernel, launch, [0.0, 2.0])
    builder.edges(arrival, kernel, 0.0, [20.0, 5.0], Work.DEVICE, [0, 1], 0)
    builder.edges(joined, arrival, 0.0)
    builder.edges(end, joined, 0.0, 3.0, Work.TRANSFER, [0, 1], 7)
    graph = builder.finish(end, arrival, np.array([0, 1]))
    path = critical_path(SimpleNamespace(graph=graph, step_calls=[graph.ends], begin=0.0))
    found = zip(path.start.tolist(), path.end.tolist(), path.part.tolist(), path.column.tolist(), strict=True)
    assert list(found)[:3] == [(0.0, 40.0, Part.HOST, 1), (40.0, 42.0, Part.LAUNCH, 1), (42.0, 47.0, Part.DEVICE, 1)]
    assert (path.start[3], path.end[3], path.part[3], path.call[3]) == (47.0, 50.0, Part.TRANSFER, 7)
    assert len(path.start) == 4
    half = path.within(20.0, 41.0)
    assert (half.start.tolist(), half.end.tolist()) == ([20.0, 40.0], [40.0, 41.0])


def test_edges_that_point_back_in_time_are_left_out() -> None:
    builder = Builder()
    early, late = builder.nodes([0.0, 5.0], 1, fixed=True)
    builder.edges(early, late, 1.0)
    graph = builder.finish(np.empty(0, np.int64))
    assert (graph.dropped, graph.replay().tolist()) == (1, [0.0, 5.0])


def test_all_edges_into_a_node_are_settled_together() -> None:
    builder = Builder()
    early, late, latest = builder.nodes([0.0, 5.0, 9.0], 1)
    for base in (1.0, 2.0):
        builder.edges([late, latest], early, base)
        builder.settle()
    with pytest.raises(ValueError, match="no neighbours"):
        builder.finish(np.empty(0, np.int64))


def test_an_edge_that_points_back_leaves_the_others_into_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes at 0 and 3 before one at 5, and an edge from a later one: it is known from the first two."""
    monkeypatch.setattr(builder_module, "AT_ONCE", 2)
    builder = Builder()
    first, second, last, later = builder.nodes([0.0, 3.0, 5.0, 9.0], 1, fixed=[True, True, False, True])
    builder.edges([last, last, last], [first, later, second], [4.0, 7.0, 1.0], label=Work.HOST, owner=[0, 1, 2])
    graph = builder.finish(np.array([last]))
    assert (graph.dropped, graph.owner.tolist()) == (1, [0, 2])
    assert graph.replay()[graph.ends].tolist() == [4.0]


def test_by_levels_and_by_node_the_times_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any graph: 200 nodes, up to four edges each from earlier ones, some nodes fixed; in several blocks of levels."""
    monkeypatch.setattr(longest_path, "EDGES_AT_ONCE", 100)
    monkeypatch.setattr(longest_path, "LEAST_AT_ONCE", 16)
    rng = np.random.default_rng(3)
    count = rng.integers(0, 5, 200)
    count[0] = 0
    first = np.concatenate(([0], np.cumsum(count)))
    source = np.concatenate([rng.integers(0, n, c) for n, c in enumerate(count) if n]).astype(np.int32)
    weight = rng.normal(10.0, 5.0, len(source))
    known, fixed = rng.normal(0.0, 100.0, 200), rng.random(200) < 0.1
    level = level_of(first, source, fixed, 0)
    order = np.argsort(level, kind="stable")
    edges, place = ranges(first[order], count[order]), np.argsort(order)
    by_level = np.concatenate(([0], np.cumsum(count[order])))
    levels = Levels(by_level, place[source[edges]], np.cumsum([0, *np.bincount(level)]).tolist())
    assert len(levels.bounds) > 5
    found = levels.run(weight[edges] - 3.0, np.full(len(weight), 3.0), known[order])
    assert found[place].tolist() == pytest.approx(by_node(first, source, weight, known, fixed).tolist())


def test_the_level_of_a_node_is_above_those_of_all_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 -> 1 -> 2, 0 -> 2, 2 -> 3 (fixed) -> 4; two nodes at a time."""
    monkeypatch.setattr(longest_path, "LEAST_AT_ONCE", 2)
    first, source = np.array([0, 0, 1, 3, 4, 5]), np.array([0, 0, 1, 2, 3], np.int32)
    assert level_of(first, source, np.array([False, False, False, True, False]), 0).tolist() == [0, 1, 2, 0, 1]


@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    ["ddp_dataloader_stall", "ddp_slow_gpu", "fsdp2_slow_gpu", "ddp_gpu_bound", "fsdp2_gpu_bound", "ddp_healthy"],
)
def test_replayed_unchanged_the_window_is_what_was_recorded(recorded, name) -> None:
    result = analyse_window(recorded(name).traces)
    assert result.refused is None
    assert result.replay.error < MAX_REPLAY_ERROR / 10
    # what the rules do not explain is small: else a what-if would keep it whatever changes
    steps = result.replay.steps * len(result.views)
    assert result.replay.graph.residual_ns / steps < 0.15 * result.step_ns


def _stalled(result, rank: int, delay_ns: float):
    """Work with a delay in front of the first call of each step of one rank."""
    replay, graph = result.replay, result.replay.graph
    calls = result.waits.step[result.matched.of(rank)]
    work = graph.work.copy()
    for step in range(replay.steps):
        segment = int((calls < step).sum())
        mine = np.flatnonzero((graph.label == Work.HOST) & (graph.owner == rank) & (graph.segment == segment))
        work[mine[0]] += delay_ns
    return work


@pytest.mark.data
def test_a_delay_put_into_a_host_bound_job_costs_what_a_real_one_costs(recorded) -> None:
    healthy, real = (
        analyse_window(recorded("ddp_healthy").traces),
        analyse_window(recorded("ddp_dataloader_stall").traces),
    )
    marks = healthy.replay.marks(_stalled(healthy, 1, 60e6))
    period = np.diff(marks).mean() / 1e6
    assert period == pytest.approx(real.step_ns / 1e6, rel=0.02)  # the same stall, recorded: 102.8 ms a step
    assert period - healthy.step_ns / 1e6 == pytest.approx(60, rel=0.03)


@pytest.mark.data
def test_a_short_delay_in_a_device_bound_job_costs_nothing(recorded) -> None:
    result = analyse_window(recorded("ddp_gpu_bound").traces)
    lost = np.diff(result.replay.marks(_stalled(result, 1, 20e6))) - np.diff(result.replay.unchanged)
    assert lost[1:].max() < 1e6


@pytest.mark.data
@pytest.mark.parametrize("name", ["ddp_dataloader_stall", "gloo_ddp_input", "gloo_fsdp2_pause"])
def test_a_planted_delay_of_known_size_costs_that_much(recorded, name) -> None:
    from .conftest import LABELS

    result = analyse_window(recorded(name).traces)
    label = LABELS[name]
    cost = result.lateness[label["rank"]].gains.mean() / 1e6
    assert cost == pytest.approx(label["planted_ms"], rel=0.15)
    assert (
        max(late.explained, key=late.explained.get) == label["cause"]
        if (late := result.lateness[label["rank"]])
        else False
    )


@pytest.mark.data
def test_an_infinitely_fast_network_gains_no_more_than_the_exposed_transfer(recorded) -> None:
    result = analyse_window(recorded("ddp_healthy").traces)
    gain = result.replay.gains(result.replay.without(Work.TRANSFER)).sum()
    assert -1e3 <= gain <= result.waits.transfer.sum()


def test_chance_that_signs_do_it() -> None:
    assert sign_flip(np.array([1.0, 1.0, 1.0])) == 1 / 8
    assert sign_flip(np.array([3.0, -1.0])) == 2 / 4
    assert sign_flip(np.array([0.0, 0.0])) is None
    assert sign_flip(np.ones(40)) < 0.001


def test_nodes_of_the_same_time_stay_in_the_order_of_their_edges() -> None:
    """Traces of whole microseconds: three points at 5, made last first, each right after the one before."""
    builder = Builder()
    first = builder.nodes(0.0, HOST, fixed=True)
    third, second, one = (builder.nodes(5.0, START) for _ in range(3))
    builder.edges(one, first, 5.0)
    builder.edges(second, one, 0.0)
    builder.edges(third, second, 0.0)
    graph = builder.finish(np.concatenate((first, one, second, third)))
    assert graph.dropped == 0
    assert graph.replay().tolist() == [0.0, 5.0, 5.0, 5.0]


def test_nodes_are_sorted_by_time_then_depth_then_rise_then_as_they_were_added() -> None:
    random = np.random.default_rng(0)
    for equal in (1, 3, 1000):
        time = random.integers(0, equal, 200).astype(np.float64)
        depth, rise = random.integers(0, 2, 200).astype(np.int32), random.integers(0, 4, 200).astype(np.int8)
        assert np.array_equal(_sorted(time, depth, rise), np.lexsort((rise, depth, time)))
    assert _sorted(np.empty(0), np.empty(0, np.int32), np.empty(0, np.int8)).tolist() == []


def test_an_end_rounded_past_the_next_begin_still_comes_before_it() -> None:
    begin, end = np.array([0.0, 10_000.0, 20_000.0]), np.array([10_900.0, 25_000.0, 29_000.0])
    rounded = without_rounding(begin, end, np.array([7, 7, 7], np.int32))
    assert rounded.tolist() == [10_000.0, 25_000.0, 29_000.0]  # 5 us are no rounding


@pytest.mark.parametrize(
    ("marks", "numbers", "opened", "begin"),
    [
        (
            [100, 130, 160],
            [3, 4, 5],
            800,
            100,
        ),  # the host runs ahead: the others begin at 800, by the clock, with step 3
        ([100, 130, 160], [2, 3, 4], 80, 130),  # step 2 was not recorded by all
        ([100, 130, 160], [3, 4, 5], 80, 80),  # what precedes the first mark belongs to the window
        ([], [], 80, 80),
    ],
)
def test_a_rank_begins_with_the_first_step_that_all_recorded_not_at_the_time_of_the_others(
    marks, numbers, opened, begin
) -> None:
    view = SimpleNamespace(
        start=opened, steps=numbers, trace=SimpleNamespace(steps=SimpleNamespace(start=np.array(marks, np.int64)))
    )
    steps = SimpleNamespace(common=np.array([3, 4]), of_rank=lambda _view, _column: np.array(numbers))
    clocks = SimpleNamespace(aligned=lambda _column, times: times)
    assert begins(view, 0, clocks, steps) == begin
