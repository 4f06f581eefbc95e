"""Grading in the benchmarks: right, missed, false alarm."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, Finding, RunInfo, Verdict

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield
    for name in [n for n, m in sys.modules.items() if BENCHMARKS in Path(getattr(m, "__file__", None) or "/").parents]:
        del sys.modules[name]


def said(named: dict[int, str], *others: tuple[str, list[int]]) -> ClusterReport:
    """A report that accuses each rank of ``named``, at 10 ms each, and has the other findings too."""
    accused = [(cause, [rank], 10.0) for rank, cause in named.items()]
    return ClusterReport(
        run=RunInfo(source="run"),
        ranks=[],
        clock=ClockReport(method="none"),
        collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
        verdict=Verdict(
            kind="straggler" if named else "balanced", ranks=list(named), cause=next(iter(named.values()), None)
        ),
        findings=[
            Finding(
                id=f"{cause}-{ranks}", kind=cause, ranks=ranks, cost_ms_per_step=cost, confidence="high", title="",
                evidence=[], advice=[],
            )
            for cause, ranks, cost in [*accused, *((cause, ranks, None) for cause, ranks in others)]
        ],
    )  # fmt: skip


def planted(truth: dict[int, str], **more):
    from jobs import Job

    return Job("job", ("gpt.py",), truth=truth, **more)


@pytest.mark.parametrize(
    ("truth", "named", "right"),
    [
        ({1: "input_stall"}, {1: "input_stall"}, True),
        ({1: "input_stall"}, {1: "host_pause"}, False),
        ({1: "input_stall"}, {0: "input_stall"}, False),
        ({1: "input_stall"}, {}, False),
        ({0: "input_stall", 1: "extra_compute"}, {1: "extra_compute"}, False),
        ({0: "input_stall", 1: "extra_compute"}, {1: "extra_compute", 0: "input_stall"}, True),
        ({}, {}, True),
        ({}, {0: "slow_compute"}, False),
    ],
)
def test_right_is_every_rank_with_its_cause_and_no_other(truth, named, right):
    from jobs import judge

    assert judge(planted(truth), said(named), None).right is right


def test_a_fault_without_cost_needs_no_straggler_but_its_cause_must_be_reported():
    from jobs import Measured, judge

    found = judge(planted({1: "host_sync"}), said({}, ("host_sync", [1])), Measured(100.0, 104.0))
    assert (found.due, found.right, found.told, found.planted) == ([], True, 1, 1)
    assert not judge(planted({1: "host_sync"}), said({}), Measured(100.0, 106.0)).right


def test_what_concerns_the_whole_job_is_due_as_a_finding():
    from jobs import judge

    job = planted({}, job_wide="redundant_sync")
    assert judge(job, said({}, ("redundant_sync", [0, 1])), None).right
    assert not judge(job, said({}), None).right
    assert not judge(job, said({0: "launch_bound"}, ("redundant_sync", [0, 1])), None).right


def test_who_abstains_is_not_right():
    from jobs import judge, score

    report = said({})
    report.verdict.kind = "insufficient_data"
    found = judge(planted({}), report, None)
    assert not found.right
    assert score([(planted({}), found)])["jobs without a straggler left alone"] == (0, 1)


def test_victims_are_reported_and_claims_add_up():
    from jobs import judge

    found = judge(planted({5: "host_pause"}, partners=(4,)), said({5: "host_pause", 4: "unexplained"}), None)
    assert (found.partners_blamed, found.claimed_ms, found.right) == ([4], 20.0, False)


def test_score_counts_named_ranks_misses_and_jobs_without_straggler():
    from jobs import judge, score

    cases = [
        (planted({1: "input_stall"}), said({1: "input_stall"})),
        (planted({0: "host_pause"}), said({0: "unexplained"}, ("host_pause", [0]))),
        (planted({0: "allocator"}), said({})),
        (planted({}), said({1: "slow_compute"})),
        (planted({}), said({})),
    ]
    assert score([(job, judge(job, report, None)) for job, report in cases]) == {
        "precision of ranks": (2, 3),
        "recall of ranks": (2, 3),
        "precision of causes": (1, 3),
        "recall of causes": (2, 3),
        "jobs without a straggler left alone": (1, 2),
    }


def test_the_bare_run_is_measured_on_either_side_of_the_fault():
    from jobs import FAULT_FROM, measure

    # GIVEN the times of all steps but the first: slow to start, then 20 ms, then 80 with three odd ones between
    steps = [500.0] * 9 + [20.0] * (FAULT_FROM - 10) + [900.0] * 3 + [80.0] * (FAULT_FROM - 3)
    assert len(steps) == 2 * FAULT_FROM - 1
    found = measure(steps)
    assert (found.healthy_ms, found.faulty_ms, found.cost_ms) == (20.0, 80.0, 60.0)


def test_trimming_takes_flow_events_only(tmp_path):
    from jobs import trim

    events = [{"ph": "X", "name": "a", "ts": 1.001, "dur": 2}, {"ph": "s", "id": 1}, {"ph": "f", "id": 1}]
    whole = {"baseTimeNanoseconds": 7, "distributedInfo": {"rank": 3}, "traceEvents": events}
    with gzip.open(tmp_path / "t.json.gz", "wt") as stream:
        json.dump(whole, stream)
    assert json.loads(gzip.decompress(trim(tmp_path / "t.json.gz"))) == {**whole, "traceEvents": events[:1]}


def test_the_tables_name_faults_that_exist_and_peers_that_wait():
    pytest.importorskip("torch")
    import cases
    import eight
    from faults import planted_here

    every = [*cases.jobs(tiny=False), *(job for part in eight.jobs(8, tiny=False) for job in part)]
    assert len({job.name for job in every}) == len(every)
    for job in every:
        assert {rank for rank in range(8) if planted_here(job.fault, 1, rank)} == (
            set(range(8)) if job.job_wide else set(job.truth)
        )
    peers = {job.name: job.partners for job in every}
    # THEN in a mesh of (4 data, 2 tensor) ranks 4 and 5 are one group, in (2 stages, 4 data) ranks 1 and 5
    assert (peers["tp_host_pause"], peers["pp_host_pause"], peers["hsdp_host_pause"]) == ((4,), (1,), ())
