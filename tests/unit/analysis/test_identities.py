"""Ids, numbers and names of calls are used only if order and ends of the calls agree with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rankscope.analysis.clocks.alignment import align
from rankscope.analysis.clocks.remarks import remarks
from rankscope.analysis.clocks.steps import find_steps
from rankscope.analysis.matching.collectives import match
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.trace.columns import Group

from .hurt import keep, lose, renumber, true_calls
from .test_worlds import report_of
from .worlds import MS, Fault, Item, Mesh, by_hand, simulate

NOISE = 0.05
FLAT = Mesh(dp=4)
PROGRAM = by_hand(3, tp=False)
CALLS = 3


def job(**more):
    return simulate(PROGRAM, FLAT, noise=NOISE, steps=6, **more)


def numbered(traces) -> None:
    for trace in traces:
        trace.collectives.seq = np.arange(len(trace.collectives))


def matched_of(traces):
    views = [make_view(t, t.rank) for t in traces]
    matched = match(views)
    assert all(len(ids) == 1 for ids in true_calls(views, matched))
    return views, matched


def test_numbers_that_agree_are_what_calls_are_known_by() -> None:
    traces = job()
    numbered(traces)
    _, matched = matched_of(traces)
    assert (matched.methods, matched.contradicted) == (["seq"], {})


@pytest.mark.parametrize("by", [1, 2, CALLS, 7], ids=["a call", "two calls", "a step", "more"])
def test_numbers_that_are_off_on_one_rank_are_not_believed(by) -> None:
    traces = job()
    numbered(traces)
    traces[2].collectives.seq = traces[2].collectives.seq + by
    views, matched = matched_of(traces)
    assert matched.matched == matched.total
    assert matched.contradicted == {"seq": [2]}
    assert np.abs(align(views, matched).offset).max() < 1000


def test_a_counter_of_all_groups_is_no_number_of_a_call() -> None:
    traces = job()
    rng = np.random.default_rng(0)
    for trace in traces:
        trace.collectives.seq = np.cumsum(rng.integers(1, 4, len(trace.collectives)))
    _, matched = matched_of(traces)
    assert matched.matched == matched.total
    assert matched.methods == ["order"]


def test_ids_that_are_others_on_each_rank_give_way_to_numbers() -> None:
    traces = job()
    numbered(traces)
    for trace in traces:
        trace.collectives.comms_id = [f"{trace.rank % 2}-{n}" for n in range(len(trace.collectives))]
    _, matched = matched_of(traces)
    assert matched.matched == matched.total
    assert set(matched.methods) == {"seq", "comms_id"}  # rank 2 has the ids of rank 0
    assert matched.contradicted == {"comms_id": [1, 3]}


@pytest.mark.parametrize("swapped", [(), (1,), (0, 3)], ids=["as named", "one rank", "two ranks"])
@pytest.mark.parametrize("described", ["", "undefined"])
def test_two_groups_of_the_same_ranks_are_identified_by_their_use(swapped, described) -> None:
    """Gathers in one, reductions in the other; some ranks call them the other way round, and start them so."""
    gather = Item("call", device=80_000, axis="world", kind="_allgather_base", elements=4096)
    program = (
        [gather] * 3 + [Item("call", device=90_000, axis="world", kind="_reduce_scatter_base")] * 2 + [Item("sync")]
    )
    traces = simulate(program, Mesh(dp=4), noise=NOISE)
    for trace in traces:
        names = ("2", "1") if trace.rank in swapped else ("1", "2")
        trace.groups = [Group(n, described, (0, 1, 2, 3)) for n in names]
        gathers = np.array(trace.collectives.kind) == "_allgather_base"
        trace.collectives.group = np.where(gathers, 0, 1).astype(np.int32)
    _, matched = matched_of(traces)
    assert matched.matched == matched.total == 4 * 5 * 4
    assert len(matched.channels) == 2
    renamed = {1: [1], 2: [1, 2]}.get(len(swapped), [])
    assert matched.contradicted.get("group names", []) == renamed


@pytest.mark.parametrize("kind", ["all_to_allv", "allgather", "reduce_scatter", "gather", "scatter"])
def test_sizes_that_differ_by_right_do_not_unmatch_a_call(kind) -> None:
    traces = simulate([Item("work", device=MS), Item("call", device=MS, kind=kind), Item("sync")], FLAT, noise=NOISE)
    rng = np.random.default_rng(0)
    for trace in traces:
        trace.collectives.in_elements = rng.integers(1, 10**6, len(trace.collectives))
        trace.collectives.out_elements = rng.integers(1, 10**6, len(trace.collectives))
    _, matched = matched_of(traces)
    assert matched.matched == matched.total > 0


def test_types_have_several_spellings_and_sizes_may_be_missing() -> None:
    traces = simulate([Item("work", device=MS), Item("call", device=MS), Item("sync")], FLAT, noise=NOISE)
    for trace, dtype in zip(traces, ("Float", "c10::Float", "torch.float32", "float"), strict=True):
        trace.collectives.dtype = [dtype] * len(trace.collectives)
    traces[2].collectives.in_elements[:] = traces[2].collectives.out_elements[:] = -1
    traces[3].collectives.dtype = [""] * len(traces[3].collectives)
    _, matched = matched_of(traces)
    assert matched.matched == matched.total > 0
    # of another name altogether, and all the same the only calls that there are
    traces[0].collectives.dtype = ["Half"] * len(traces[0].collectives)
    assert match([make_view(t, t.rank) for t in traces]).matched == matched.total


def test_ranks_list_a_group_in_their_own_order() -> None:
    traces = simulate([Item("work", device=MS), Item("call", device=MS), Item("sync")], FLAT, noise=NOISE)
    for trace, order in zip(traces, ((0, 1, 2, 3), (1, 0, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)), strict=True):
        trace.groups = [replace(group, ranks=order) for group in trace.groups]
    matched = match([make_view(t, t.rank) for t in traces])
    assert matched.matched == matched.total > 0
    assert [c.ranks for c in matched.channels] == [(0, 1, 2, 3)]


def test_ranks_that_have_no_call_alike_leave_the_others_matched() -> None:
    traces = simulate([Item("work", device=MS), Item("call", device=MS), Item("sync")], FLAT, noise=NOISE)
    traces[1].collectives.kind = ["broadcast"] * len(traces[1].collectives)
    matched = match([make_view(t, t.rank) for t in traces])
    assert matched.matched == matched.total - len(traces[1].collectives)
    assert dict(matched.unmatched) == {"calls of the group disagree in kind, size or type": len(traces[1].collectives)}


def test_kernels_without_arguments_are_pairs_unless_all_ranks_ran_them_at_once() -> None:
    together = [Item("work", device=MS), Item("call", device=MS, kind="sendrecv"), Item("sync")]
    views, matched = matched_of(simulate(together, FLAT, noise=NOISE))
    assert (set(matched.kind), matched.matched) == ({"all_to_all"}, matched.total)
    # a lost record of each of two ranks makes them no pairs
    for trace, row in zip(traces := simulate(together, FLAT, noise=NOISE, steps=6), (1, 2), strict=False):
        lose(trace, [row])
    matched = match([make_view(t, t.rank) for t in traces])
    assert (set(matched.kind), matched.matched) == ({"all_to_all"}, matched.total)
    for steps in (4, 3):
        traces = simulate(together, FLAT, noise=NOISE, steps=steps)
        for trace in traces[2:]:  # two pairs, one after the other
            trace.events.start = trace.events.start + np.where(trace.events.step % 2, 40 * MS, 0)
        views = [make_view(t, t.rank) for t in traces]
        matched = match(views)
        notes = remarks(views, matched, align(views, matched), find_steps(views, matched))
        if steps == 4:
            assert {(c.ranks, c.point_to_point) for c in matched.channels} == {((0, 1), True), ((2, 3), True)}
            assert (set(matched.kind), matched.methods, matched.matched) == ({"sendrecv"}, ["ends"], matched.total)
            assert any("the peers of 8 sends and receives are not recorded" in note for note in notes)
        else:  # too few to say that ends scatter no more than those of one message
            assert len(matched) == 0
            assert list(matched.unmatched) == ["kernels without arguments: the peers are unknown"]
            assert any(f"{matched.total} kernels send or receive between ranks that nothing" in note for note in notes)


def test_numbers_of_steps_that_restart_on_one_rank() -> None:
    traces = job()
    numbered(traces)
    renumber(traces[2], -10)
    views, matched = matched_of(traces)
    steps = find_steps(views, matched)
    assert (steps.later, steps.differ, steps.common.tolist()) == ([0, 0, 10, 0], [2], list(range(10, 16)))


@pytest.mark.parametrize("seq", [True, False])
def test_equal_numbers_of_different_steps_on_one_clock(seq) -> None:
    """Rank 2 counts one behind, and its window opens one step later: both cover 10 to 15 by their own numbers."""
    traces = simulate(PROGRAM, FLAT, noise=NOISE, steps=7, faults=[Fault(1, Item("fetch", host=3 * MS))])
    if seq:
        numbered(traces)
    for trace in traces:
        first = 1 if trace.rank == 2 else 0
        keep_steps(trace, first, first + 6)
        if trace.rank == 2:
            renumber(trace, -1)
    result = analyse_window(traces)
    assert result.waits.steps.common.tolist() == list(range(11, 16))
    assert any("step numbers of rank 2 differ" in note for note in result.notes)
    assert np.abs(result.clocks.offset).max() < 50_000
    assert report_of(traces).verdict.ranks == [1]


def keep_steps(trace, first: int, end: int) -> None:
    """A window of these steps only."""
    events, steps = trace.events, trace.steps
    keep(trace, (events.step >= first) & (events.step < end))
    for name in ("number", "start", "duration"):
        setattr(steps, name, getattr(steps, name)[first:end])
    trace.events.step = trace.events.step - first


def test_the_mean_step_and_the_cost_are_of_the_same_steps() -> None:
    """The late rank stalls in the first step alone: 6 ms of six steps are 1 ms each, and the step holds that 1 ms."""
    stalled = job(faults=[Fault(1, Item("fetch", host=6 * MS), steps=(0,))])
    healthy = analyse_window(job()).step_ns
    result = analyse_window(stalled)
    assert result.step_ns - healthy == pytest.approx(MS, rel=0.1)
    assert result.lateness[1].gains.sum() / 6 == pytest.approx(MS, rel=0.1)
