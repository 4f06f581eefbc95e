"""Two views of one report agree: sums of its tables are compared, on recorded and hand-made jobs.

Of each pair of numbers the truth is the definition in docs/metrics.md.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.records.report import ClusterReport
from rankscope.records.rows import RankIdle, RankSummary
from rankscope.trace.files.load import load_traces

DATA = Path(__file__).parents[2] / "data" / "traces"
NAMES = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())

pytestmark = pytest.mark.data


@cache
def report_of(name: str) -> ClusterReport:
    return analyze(load_traces([DATA / name], workers=1, cache=False))


@pytest.fixture(params=NAMES)
def report(request: pytest.FixtureRequest) -> ClusterReport:
    found = report_of(request.param)
    assert found.errors == []
    return found


def pairs(report: ClusterReport) -> list[tuple[RankSummary, RankIdle, float]]:
    """Summary and idle row of each rank, and the length of its window per step, ms, as the two together say."""
    idle = {row.rank: row for row in report.idle}
    assert sorted(idle) == [r.rank for r in report.ranks if r.compute_pct is not None]
    found = []
    for rank in report.ranks:
        if rank.compute_pct is None:
            continue
        own = idle[rank.rank]
        rest = own.waiting_ms + own.transfer_ms + own.input_ms + own.host_ms + own.copy_ms
        found.append((rank, own, rest / (1.0 - rank.compute_pct / 100.0)))
    return found


def close(value: float, rel: float = 1e-6, least: float = 1e-6):
    return pytest.approx(value, rel=rel, abs=least)


def test_a_rank_s_shares_are_all_of_its_window(report) -> None:
    for rank, own, window in pairs(report):
        assert rank.compute_pct + rank.exposed_comm_pct + rank.memcpy_pct + rank.idle_pct == close(100.0)
        if rank.overlap_pct is not None:
            assert rank.exposed_comm_pct == close(rank.comm_pct * (1.0 - rank.overlap_pct / 100.0))
        # where the rest of the time goes, in ms, is what the shares say
        assert own.waiting_ms + own.transfer_ms == close(rank.exposed_comm_pct * window / 100.0)
        assert own.input_ms + own.host_ms == close(rank.idle_pct * window / 100.0)
        assert own.copy_ms == close(rank.memcpy_pct * window / 100.0)


def test_a_window_holds_as_many_steps_of_device_as_of_host_work(report) -> None:
    """The window per step is the job's step, to a tenth: what was queued before it is not divided by its steps."""
    periods = [window for _, _, window in pairs(report)]
    assert max(periods) <= 1.1 * report.verdict.step_ms
    assert min(periods) >= 0.9 * report.verdict.step_ms


def test_the_steps_of_a_rank_sum_to_the_rank(report) -> None:
    for rank, own, window in pairs(report):
        rows = [row for row in report.steps if row.rank == rank.rank]
        assert len(rows) == rank.steps
        assert np.median([row.duration_ms for row in rows]) == close(rank.step_ms["median"])
        whole = window * rank.steps
        # between two steps on a CPU nothing is counted, and work of two steps can overlap: a thousandth of the window
        for name in ("compute", "comm", "exposed_comm", "idle"):
            summed = sum(getattr(row, f"{name}_ms") for row in rows)
            assert summed == close(getattr(rank, f"{name}_pct") * whole / 100.0, rel=0.0, least=1e-3 * whole)
        assert sum(row.wait_ms or 0.0 for row in rows) == close(rank.wait_ms_per_step * rank.steps)
        inputs = [row.input_ms for row in rows]
        assert sum(inputs) == close(own.input_ms * rank.steps, rel=0.0, least=1e-3 * whole)
        assert all(0.0 <= row.input_ms <= row.idle_ms + 1e-3 * window for row in rows)


def test_waiting_that_is_exposed_is_the_same_by_step_and_by_rank(report) -> None:
    for own in report.idle:
        rows = [row for row in report.steps if row.rank == own.rank]
        assert all(0.0 <= row.waiting_ms <= row.exposed_comm_ms for row in rows)
        assert sum(row.waiting_ms for row in rows) / len(rows) == close(own.waiting_ms, rel=0.01, least=0.01)


def test_waiting_is_the_same_by_rank_by_cause_and_by_group(report) -> None:
    ranks = [rank for rank, _, _ in pairs(report)]
    waited = sum(r.wait_ms_per_step for r in ranks)
    assert sum(r.caused_wait_ms_per_step for r in ranks) == close(waited)
    assert sum(g.wait_ms_per_step * len(g.ranks) for g in report.groups) == close(waited)


def test_exposed_communication_is_the_same_by_rank_and_by_group(report) -> None:
    """Every call of these jobs is matched; what other jobs left unmatched is in the ranks' time alone."""
    assert report.collectives.matched_pct > 97.0
    exposed = sum(own.waiting_ms + own.transfer_ms for _, own, _ in pairs(report))
    by_group = sum(g.exposed_ms_per_step * len(g.ranks) for g in report.groups)
    assert by_group == close(exposed, rel=0.0, least=1e-3 * max(w for _, _, w in pairs(report)))


@pytest.mark.parametrize("report", [name for name in NAMES if not name.startswith("graph_")], indirect=True)
def test_modules_sum_to_their_groups(report) -> None:
    """All communication of these jobs is FSDP's or DDP's; DDP's broadcasts of buffers belong to no bucket."""
    assert report.modules
    for group in report.groups:
        if group.collective == "broadcast":
            continue
        mine = [m for m in report.modules if (m.ranks, m.collective) == (group.ranks, group.collective)]
        for name in ("calls_per_step", "wait_ms_per_step", "transfer_ms_per_step", "exposed_ms_per_step"):
            assert sum(getattr(m, name) for m in mine) == close(getattr(group, name))
        moved = sum(m.megabytes_per_call * m.calls_per_step for m in mine if m.megabytes_per_call)
        assert moved == close((group.megabytes_per_call or 0.0) * group.calls_per_step)


def test_kernels_take_no_more_than_all_of_the_time(report) -> None:
    assert 99.0 < sum(k.share_pct for k in report.kernels) <= 100.0 + 1e-6
    ranked = [k.share_pct for k in report.kernels]
    assert ranked == sorted(ranked, reverse=True)
    for kernel in report.kernels:
        assert kernel.max_rank in {r.rank for r in report.ranks}
        assert kernel.max_over_median >= 1.0 - 1e-9


def test_queues_are_of_the_ranks_with_a_device(report) -> None:
    assert [q.rank for q in report.queues] == [r.rank for r in report.ranks if r.device != "CPU"]
    idle = {rank.rank: (rank.idle_pct, window) for rank, _, window in pairs(report)}
    for queue in report.queues:
        assert queue.median_outstanding <= queue.max_outstanding
        # starving is idling with nothing asked for
        assert queue.starved_pct <= idle[queue.rank][0] + 1.0


def test_the_verdict_says_what_its_finding_says(report) -> None:
    verdict = report.verdict
    if verdict.kind != "straggler":
        assert verdict.ranks == []
        assert verdict.cost_ms_per_step is None
        return
    [finding] = [f for f in report.findings if f.ranks == verdict.ranks[:1] and f.kind == verdict.cause]
    assert finding.cost_ms_per_step == verdict.cost_ms_per_step
    assert finding.confidence == verdict.confidence
    assert verdict.cost_ms_per_step < verdict.step_ms
    # the costliest finding comes first
    assert report.findings[0].cost_ms_per_step >= verdict.cost_ms_per_step


def test_all_speak_of_the_same_ranks(report) -> None:
    ranks = {r.rank for r in report.ranks}
    assert {row.rank for row in report.steps} == ranks
    assert {int(rank) for rank in report.clock.offsets_us} == ranks
    assert all(set(g.ranks) <= ranks for g in report.groups)
    assert all(set(f.ranks) <= ranks for f in report.findings)
    assert Counter(s.rank for s in report.sources if s.status == "used") == Counter(ranks)
    for by_rank in report.hta.values():
        assert {int(rank) for rank in by_rank} <= ranks


def test_calls_per_step_are_the_calls_that_were_matched(report) -> None:
    steps = max(r.steps for r in report.ranks)
    matched = sum(g.calls_per_step * len(g.ranks) for g in report.groups) * steps
    assert matched <= report.collectives.count
    lost = sum(report.collectives.unmatched.values())
    assert matched == close(report.collectives.count - lost, rel=0.0, least=0.5)
