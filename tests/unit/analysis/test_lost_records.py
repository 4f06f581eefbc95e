"""With lost records all other calls are matched, and the verdict is the same (see ``worlds``)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from rankscope.analysis.clocks.alignment import align
from rankscope.analysis.matching.collectives import match
from rankscope.analysis.matching.sequences import CallSequence, by_signature, heaviest_chain
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.replay.alignment import NOWHERE, places_in
from rankscope.analysis.windows.analyse import analyse_window

from .hurt import lose, true_calls
from .test_worlds import report_of
from .worlds import MS, Fault, Item, Mesh, by_hand, pipeline, simulate

pytestmark = pytest.mark.data

NOISE = 0.02
STALL = Item("fetch", host=3 * MS)
JOBS = {
    "dp8": (Mesh(dp=8), by_hand(tp=False), 3),
    "tp2dp4": (Mesh(tp=2, dp=4), by_hand(), 3),
    "pp4dp2": (Mesh(pp=4, dp=2), pipeline(4), 3),
}


def viewed(traces):
    return [make_view(t, t.rank) for t in traces]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_lost_record_costs_its_own_call_only(job, place, skew) -> None:
    mesh, program, _ = JOBS[job]
    traces = simulate(program, mesh, noise=NOISE)
    skew(traces[2], 30 * MS, 50.0)
    count = len(traces[2].collectives)
    lose(traces[2], [{"first": 0, "middle": count // 2, "last": count - 1}[place]])
    views = viewed(traces)
    matched = match(views)
    assert all(len(ids) == 1 for ids in true_calls(views, matched))
    # of a pair the other rank is left alone with its record
    assert matched.total - matched.matched <= 1
    assert matched.lost == [int(place == "middle" and rank == 2) for rank in range(8)] or place != "middle"
    clocks = align(views, matched)
    assert clocks.offset[2] - clocks.offset[0] == pytest.approx(-30 * MS, abs=20_000)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("job", JOBS)
def test_a_twentieth_of_all_records_lost_on_every_rank(job, seed, skew) -> None:
    """Calls of one kind and size in a row: only their times tell which of them is missing."""
    mesh, program, _ = JOBS[job]
    rng = np.random.default_rng(seed)
    traces = simulate(program, mesh, noise=NOISE, steps=5, seed=seed)
    for trace in traces:
        lose(trace, np.flatnonzero(rng.random(len(trace.collectives)) < 0.05).tolist())
    for trace in traces[1:]:
        skew(trace, int(rng.integers(-50 * MS, 50 * MS)), float(rng.uniform(-100, 100)))
    views = viewed(traces)
    matched = match(views)
    # a message need not overlap with its receipt: of a step of which both ranks lost one, nothing tells the rest apart
    wrong = sum(len(ids) > 1 for ids in true_calls(views, matched))
    assert wrong <= (0.05 * len(matched) if job == "pp4dp2" else 0)
    assert matched.matched >= 0.99 * (matched.total - recorded_alone(traces))


def identities(trace) -> list[tuple[int, tuple[int, ...]]]:
    """Of each call: its correlation id, and who takes part."""
    calls = trace.collectives
    found = []
    for event, group, peer in zip(calls.event, calls.group, calls.peer, strict=True):
        ranks = trace.groups[group].ranks if peer < 0 else tuple(sorted((trace.rank, int(peer))))
        found.append((int(trace.events.correlation[event]), ranks))
    return found


def recorded_alone(traces) -> int:
    """How many records are the only one of their call."""
    often = Counter(i for t in traces for i in identities(t))
    return sum(count == 1 for count in often.values())


@pytest.mark.parametrize("lost", [(2,), (3,), (0, 5)], ids=["a victim's", "the late rank's", "two ranks'"])
def test_the_verdict_and_its_cost_stay(lost) -> None:
    mesh, program, late = JOBS["tp2dp4"]
    planted = [Fault(late, STALL)]
    whole = report_of(simulate(program, mesh, noise=NOISE, faults=planted)).verdict
    traces = simulate(program, mesh, noise=NOISE, faults=planted)
    for rank in lost:
        lose(traces[rank], [len(traces[rank].collectives) // 2 + rank])
    found = report_of(traces)
    assert (found.verdict.ranks, found.verdict.cause) == ([late], "input_stall")
    assert found.verdict.cost_ms_per_step == pytest.approx(whole.cost_ms_per_step, rel=0.05)
    assert any("missing" in note for note in found.run.notes)


@pytest.mark.parametrize("job", ["dp8", "tp2dp4"])
def test_a_late_rank_is_found_with_a_twentieth_of_the_calls_lost(job) -> None:
    mesh, program, late = JOBS[job]
    rng = np.random.default_rng(0)
    traces = simulate(program, mesh, noise=NOISE, steps=6, faults=[Fault(late, STALL)])
    for trace in traces:
        lose(trace, np.flatnonzero(rng.random(len(trace.collectives)) < 0.05).tolist())
    assert report_of(traces).verdict.ranks == [late]
    healthy = simulate(program, mesh, noise=NOISE, steps=6)
    for trace in healthy:
        lose(trace, np.flatnonzero(rng.random(len(trace.collectives)) < 0.05).tolist())
    assert report_of(healthy).verdict.ranks == []


@pytest.mark.parametrize("steps_by", [0.2, 1.36, -0.2])
def test_a_clock_that_is_set_moves_no_call_to_another_step(steps_by) -> None:
    """Within a step, by a part of one or by more than one: the calls are those of their steps all the same."""
    mesh, program = Mesh(dp=4), by_hand(tp=False)
    traces = simulate(program, mesh, noise=NOISE, steps=6, seed=1)
    own = traces[3]
    at = int(own.steps.start[3] + own.steps.duration[3] * 4 // 5)
    by = int(steps_by * float(np.median(own.steps.duration)))
    for row in (own.events, own.steps):
        end = row.start + row.duration
        row.start, end = row.start + by * (row.start > at), end + by * (end > at)
        row.duration = np.maximum(end - row.start, 0)
    views = viewed(traces)
    matched = match(views)
    assert all(len(ids) == 1 for ids in true_calls(views, matched))
    assert matched.matched >= 0.98 * matched.total
    (jump,) = align(views, matched).steps[3]
    assert jump.size == pytest.approx(by, abs=50_000)


def test_work_behind_a_lost_call_still_waits_for_it() -> None:
    """Rank 1 has no record of a call that later compute waits for: mending the late rank moves that compute too."""
    mesh, program = Mesh(tp=4), [Item("work", device=MS), Item("call", device=80_000, axis="tp", blocking=True),
                                 Item("work", device=MS), Item("sync")]  # fmt: skip
    traces = simulate(program, mesh, steps=4, faults=[Fault(3, STALL)])
    whole = analyse_window(traces).lateness[3].gains.sum()
    traces = simulate(program, mesh, steps=4, faults=[Fault(3, STALL)])
    lose(traces[1], [1])
    assert analyse_window(traces).lateness[3].gains.sum() == pytest.approx(whole, rel=0.01)


def test_the_heaviest_chain_is_that_of_all_chains() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b, weight = rng.integers(0, 5, 7), rng.integers(0, 5, 7), rng.integers(1, 9, 7).astype(float)
        best = 0.0
        for chosen in range(1 << 7):
            rows = sorted((int(a[i]), int(b[i]), weight[i]) for i in range(7) if chosen >> i & 1)
            if all(x[0] < y[0] and x[1] < y[1] for x, y in pairwise(rows)):
                best = max(best, sum(r[2] for r in rows))
        kept = heaviest_chain(a, b, weight)
        assert weight[kept].sum() == best
        assert (np.diff(a[kept]) > 0).all()
        assert (np.diff(b[kept]) > 0).all()


def test_the_longest_common_subsequence_leaves_gaps_where_they_are() -> None:
    def sequence(kinds: str) -> CallSequence:
        none, no = np.full(len(kinds), -1), np.zeros(len(kinds), bool)
        must = np.array([ord(k) for k in kinds])
        times = np.arange(len(kinds)) * 100
        return CallSequence(np.arange(len(kinds)), times, times + 50, must, must, no, no, none, none, none)

    a, b = by_signature(sequence("abcabcdd"), sequence("abbcdd"))
    assert (a.tolist(), b.tolist()) == ([0, 1, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5])


def test_places_of_a_rank_that_lost_what_its_peer_did_not() -> None:
    head = np.array([1, 2, 3, 1, 2, 3, 1, 2, 3])
    assert places_in(head, np.array([1, 2, 3, 1, 3, 1, 2, 3]), 0, 0, 1).tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    extra = places_in(head, np.array([1, 2, 3, 1, 2, 9, 3, 1, 2, 3]), 0, 1, 0)
    assert extra.tolist() == [0, 1, 2, 3, 4, NOWHERE, 5, 6, 7, 8]
    assert places_in(head, np.array([1, 2, 3, 1, 3, 1, 2, 3]), 0, 0, 0) is None  # nothing is known to be lost
