"""Verdicts on a busy machine; all numbers are calculated by hand from the definitions."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from rankscope.diagnose.advice.table import advise
from rankscope.diagnose.base.contention import is_contended
from rankscope.diagnose.base.decision import decide
from rankscope.diagnose.rules.table import find, open_case
from rankscope.diagnose.verdict import judge
from rankscope.records.codec import from_json
from rankscope.records.evidence import Anomaly, Contention, Evidence, RankCpu, Suspect
from rankscope.records.rows import HealthRow
from rankscope.statistics.chance import student_tail

DATA = Path(__file__).parents[2] / "data" / "evidence"
NOISE = [1.0, -2.0, 0.0, 2.0, -1.0, 0.0]
"""Scatter of what a rank takes by itself, ms; its mean is 0."""


def rank(number: int, held: float | list[float], own: float = 50.0, cpu: float = 50.0, **named: float) -> RankCpu:
    """A rank of six steps that takes ``own`` ms by itself, of which it computes ``cpu``."""
    sign = 1 if number % 2 else -1
    return RankCpu(
        rank=number,
        host="node",
        held_ms=held if isinstance(held, list) else [held] * 6,
        cpu_ms=[cpu + sign * n / 2 for n in NOISE],
        own_ms=[own + sign * n for n in NOISE],
        least_ms=[own + sign * n for n in NOISE],
        named_ms={cause: [ms + sign * n for n in NOISE] for cause, ms in named.items()},
    )


def late(number: int, gains: list[float], cause: str = "slow_compute") -> Suspect:
    mean = sum(gains) / len(gains)
    return Suspect(
        rank=number, cost_ms=mean, error_ms=1.0, gains_ms=gains, excess_ms=mean, explained={cause: mean}, p_value=1 / 64
    )


def evidence(*ranks: RankCpu, suspects: list[Suspect], gains: float = 60.0, **more) -> Evidence:
    witness = Contention(ranks=list(ranks), gains_ms=[gains] * 6, **more)
    return Evidence(
        ranks=[r.rank for r in ranks], steps=6, step_ms=120.0, calls=60, matched_pct=100.0, overlap_pct=80.0,
        device=False, suspects=suspects, contention=witness,
    )  # fmt: skip


def verdict(case: Evidence):
    opened = open_case(case)
    return judge(opened, advise(opened))


def test_a_rank_that_waits_for_a_cpu_is_not_named() -> None:
    # GIVEN a rank 20 ms late in each step, which waited 90 ms for a CPU where its peer waited 60; by themselves both
    # take 50
    case = evidence(
        rank(0, 60.0), rank(1, 90.0), suspects=[late(1, [20.0] * 6)], others_ms={"node": 150.0}, cpus={"node": 2.0}
    )
    # THEN the machine is named, with what it costs, and no rank
    found = verdict(case)
    assert (found.kind, found.ranks, found.cause, found.cost_ms_per_step) == ("contended", [], None, 60.0)
    assert found.sentence == (
        "The machine was busy: other processes took its CPUs. That costs 60 ms of each 120 ms step (50 %); no rank is "
        "to blame."
    )
    assert [f.kind for f in find(open_case(case))] == ["contended"]
    assert any("Rank 1 looked 20 ms a step late" in line for line in found.why)


def test_a_named_rank_is_not_attributed_to_the_machine() -> None:
    # 60 ms a step late, of which the machine explains 10 at most
    case = evidence(rank(0, 10.0), rank(1, 10.0, own=110.0, input_stall=60.0), suspects=[late(1, [60.0] * 6)])
    case.suspects[0].explained = {"input_stall": 60.0}
    opened = open_case(case)
    assert [d.suspect.rank for d in opened.stragglers] == [1]
    (found,) = [f for f in find(opened) if f.kind == "contended"]
    assert not any("looked" in line for line in found.evidence)


def test_without_the_schedulers_counts_the_same_rank_is_named() -> None:
    case = evidence(rank(0, 60.0), rank(1, 90.0), suspects=[late(1, [20.0] * 6)])
    assert [a.suspect.rank for a in decide(dataclasses.replace(case, contention=None))] == [1]


def test_late_beyond_all_that_the_machine_explains() -> None:
    # 45 ms late a step, and never waited more than 5 ms for a CPU: the accusation stands as it was
    case = evidence(rank(0, 5.0), rank(1, 5.0), suspects=[late(1, [45.0] * 6)], gains=4.0)
    (accusation,) = decide(case)
    assert (accusation.suspect.rank, accusation.cause, accusation.suspect.cost_ms) == (1, "slow_compute", 45.0)


def test_a_fault_under_load_is_separated_from_contention() -> None:
    # GIVEN 30 ms more than the peers by itself, in which it does not compute: a sleep; 200 ms of run queue on both
    bad = rank(1, 200.0, own=80.0, input_stall=30.0)
    case = evidence(rank(0, 200.0, input_stall=0.0), bad, suspects=[late(1, [20.0] * 6, "slow_compute")])
    (accusation,) = decide(case)
    assert (accusation.suspect.rank, accusation.cause) == (1, "input_stall")
    assert accusation.suspect.cost_ms == pytest.approx(30.0)
    assert verdict(case).ranks == [1]
    # what the replay is known to be wrong by is in the error of that as well: 7 % of 30 ms beside the scatter
    known = [dataclasses.replace(s, model_error=0.07) for s in case.suspects]
    (wider,) = decide(dataclasses.replace(case, suspects=known))
    assert wider.suspect.error_ms == pytest.approx(math.hypot(accusation.suspect.error_ms, 2.1))


def test_a_rank_bound_to_a_busy_core_is_not_named() -> None:
    # its trace shows pauses of 30 ms a step, but all of them are run queue: by itself it takes no more than its peer
    case = evidence(
        rank(0, 1.0, host_pause=0.0), rank(1, 40.0, host_pause=30.0), suspects=[late(1, [35.0] * 6, "host_pause")]
    )
    assert (verdict(case).kind, decide(case)) == ("contended", [])


def test_more_work_shows_in_cpu_time() -> None:
    # 25 ms of CPU time more, and operators that the peer does not run; what it takes by itself is too noisy to tell
    good, bad = rank(0, 100.0), rank(1, 100.0, cpu=75.0)
    bad.own_ms = bad.least_ms = [150.0, 20.0, 90.0, 40.0, 130.0, 10.0]
    case = evidence(good, bad, suspects=[late(1, [60.0] * 6, "extra_compute")])
    (accusation,) = decide(case)
    assert (accusation.cause, accusation.suspect.cost_ms) == ("extra_compute", pytest.approx(25.0))


def test_the_same_work_taking_longer_is_what_busy_machines_do() -> None:
    case = evidence(rank(0, 60.0), rank(1, 90.0, own=60.0, cpu=60.0), suspects=[late(1, [20.0] * 6)])
    assert verdict(case).kind == "contended"


def test_scatter_is_no_fault() -> None:
    # a mean of 20 ms from one step of 120
    bad = rank(1, 90.0)
    bad.own_ms = bad.least_ms = [50.0, 50.0, 170.0, 50.0, 50.0, 50.0]
    case = evidence(rank(0, 90.0), bad, suspects=[late(1, [20.0] * 6, "host_pause")])
    assert verdict(case).kind == "contended"


def test_a_slow_device_is_not_the_hosts_run_queue() -> None:
    # the host of rank 1 waits for a CPU, beside kernels that run 30 ms longer
    cpu = [dataclasses.replace(rank(n, 40.0), own_ms=[]) for n in (0, 1)]
    case = evidence(*cpu, suspects=[late(1, [30.0] * 6, "slow_compute")])
    case.device = True
    assert [a.suspect.rank for a in decide(case)] == [1]


@pytest.mark.parametrize(
    ("others_ms", "word", "advice"),
    [
        # the ranks of the host wait 60 + 80 ms a step for a CPU; other processes use so much of them
        (100.0, "other processes took its CPUs", "End the other processes"),
        (10.0, "the job has more threads than CPUs", "OMP_NUM_THREADS"),
        (None, "the job's threads waited for a CPU", "OMP_NUM_THREADS"),
    ],
)
def test_who_took_the_cpus(others_ms, word, advice) -> None:
    found = verdict(
        evidence(
            rank(0, 60.0),
            rank(1, 80.0),
            suspects=[],
            others_ms={} if others_ms is None else {"node": others_ms},
            cpus={"node": 2.0},
        )
    )
    assert found.sentence.startswith(f"The machine was busy: {word}.")
    assert any(advice in line for line in found.next)
    assert any("End the other processes" in line for line in found.next) is (others_ms != 10.0)


def test_of_several_hosts_the_one_with_most_waiting_is_asked() -> None:
    # the host beside is busy with others, the one whose ranks wait is not
    case = evidence(rank(0, 60.0), rank(1, 2.0), suspects=[], others_ms={"node": 0.0, "beside": 300.0})
    case.contention.ranks[1].host = "beside"
    assert "the job has more threads than CPUs" in verdict(case).sentence


def test_a_free_machine_is_not_spoken_of() -> None:
    case = evidence(rank(0, 1.0), rank(1, 1.0), suspects=[], gains=1.0)
    assert not is_contended(case)
    assert (verdict(case).kind, find(open_case(case))) == ("balanced", [])


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    # quantiles of Student's t as printed in tables
    [(2.015, 5, 0.05), (3.365, 5, 0.01), (12.706, 1, 0.025), (1.645, 10**6, 0.05), (-2.015, 5, 0.95), (0.0, 3, 0.5)],
)
def test_the_tail_of_students_t(t, freedom, tail) -> None:
    assert student_tail(t, freedom) == pytest.approx(tail, abs=2e-4)


def recorded(name: str) -> Evidence:
    return from_json(Evidence, (DATA / f"{name}.json").read_bytes())


@pytest.mark.parametrize(
    ("name", "bad", "slept_ms"),
    [
        ("ddp4_input_stall_beside_6", 2, 60.0),
        ("fsdp2_input_stall_beside_2", 1, 30.0),
        # the other rank is late, by 430 ms a step: it shares its core with more processes
        ("fsdp2_input_stall_beside_uneven_load", 1, 30.0),
    ],
)
def test_recorded_faults_beside_load(name, bad, slept_ms) -> None:
    found = verdict(recorded(name))
    assert (found.ranks, found.cause) == ([bad], "input_stall")
    assert found.cost_ms_per_step == pytest.approx(slept_ms, rel=0.1)


def test_a_recorded_healthy_job_beside_load() -> None:
    case = recorded("fsdp2_healthy_beside_6")
    assert (verdict(case).kind, verdict(case).ranks) == ("contended", [])
    # what the verdict was before the scheduler was asked
    assert [d.suspect.rank for d in decide(dataclasses.replace(case, contention=None))] == [1]


def on_devices(*others: int, cause: str = "slow_compute") -> Evidence:
    """Rank 1 is 20 of 100 ms late on its device; ``others``: processes that are not the job's on each rank's device."""
    return Evidence(
        ranks=[0, 1], steps=6, step_ms=100.0, calls=60, matched_pct=100.0, overlap_pct=80.0,
        suspects=[late(1, [20.0] * 6, cause)],
        health=[HealthRow(rank=n, device="GPU", other_processes=count) for n, count in enumerate(others)],
    )  # fmt: skip


def test_a_shared_device_is_no_ranks_fault() -> None:
    found = verdict(on_devices(0, 1))
    assert (found.kind, found.ranks, found.cost_ms_per_step) == ("contended", [], 20.0)
    assert found.sentence == (
        "The machine was busy: another process uses rank 1's device. That costs 20 ms of each 100 ms step (20 %); no "
        "rank is to blame."
    )
    assert [(f.kind, f.ranks) for f in find(open_case(on_devices(0, 1)))] == [("contended", [1])]


@pytest.mark.parametrize(
    ("others", "cause"),
    [
        ((0, 0), "slow_compute"),
        ((1, 1), "slow_compute"),  # its peers' devices are shared as well: that is no reason to be slower
        ((1, 0), "slow_compute"),
        ((0, 1), "input_stall"),  # the host's doing
    ],
)
def test_what_a_shared_device_does_not_explain(others, cause) -> None:
    assert verdict(on_devices(*others, cause=cause)).ranks == [1]


def test_a_verdict_that_abstains_names_the_machine() -> None:
    case = evidence(rank(0, 60.0), rank(1, 60.0), suspects=[], others_ms={"node": 120.0})
    case.refused = "replaying the window unchanged misses its length by 5.0 %"
    found = verdict(case)
    assert found.kind == "insufficient_data"
    assert found.why[0].startswith("The machine was busy: other processes took its CPUs.")
    assert found.next[0].startswith("End the other processes")


def test_what_the_machine_explains_is_no_difference_of_a_rank() -> None:
    # 35 ms a step more of the same work, on a rank that waited 90 ms for a CPU; the other's 100 ms are more than that
    case = evidence(rank(0, 60.0), rank(1, 90.0), suspects=[])
    case.anomalies = [
        Anomaly(rank=1, cause="slow_compute", own_ms=85.0, peers_ms=50.0),
        Anomaly(rank=0, cause="input_stall", own_ms=100.0, peers_ms=0.0),
    ]
    assert [(f.kind, f.ranks) for f in find(open_case(case))] == [("contended", [0, 1]), ("input_stall", [0])]


def test_threads_of_the_script_are_spoken_of() -> None:
    case = evidence(rank(0, 60.0), rank(1, 60.0), suspects=[])
    case.contention.ranks[0].script_ms, case.contention.ranks[1].script_ms = [0.0] * 6, [50.0] * 6
    assert "Other threads of rank 1's script used 50 ms of CPU a step, its peers' 0.0 ms." in verdict(case).why


@pytest.mark.parametrize(
    ("beside", "gain", "named"),
    [
        (900.0, 14.0, False),  # 12 CPUs are busy: 14 ms is less than half of the 50 ms that it runs a step
        (900.0, 26.0, True),  # more than sharing a core can cost
        (20.0, 14.0, True),  # 20 ms beside it cannot slow it by more than 10
        (None, 14.0, True),  # not counted
    ],
)
def test_the_same_work_takes_longer_beside_others_on_the_host(beside: float | None, gain: float, named: bool) -> None:
    more = {} if beside is None else {"beside_ms": {"node": beside}}
    case = evidence(rank(0, 0.0), rank(1, 0.0), suspects=[late(1, [gain] * 6)], gains=0.0, **more)
    found = verdict(case)
    if named:
        assert (found.kind, found.ranks) == ("straggler", [1])
    else:
        assert (found.kind, found.ranks, found.cost_ms_per_step) == ("contended", [], gain)
        assert found.sentence == (
            "The machine was busy: others may use rank 1's cores. That costs 14 ms of each 120 ms step (12 %); no rank "
            "is to blame."
        )
        assert any("900 ms of CPU per step on host node" in line for line in found.why)
    # what a trace shows by itself is the rank's own, whoever else runs
    case.suspects = [late(1, [gain] * 6, "input_stall")]
    assert [d.suspect.rank for d in decide(case)] == [1]
