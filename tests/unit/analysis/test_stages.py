"""Pipeline stages: the replay of a stage that sends and receives at once, and what the longest stage costs."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from rankscope.analysis.evidence.stage_balance import stage_balance
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.diagnose.advice.table import advise
from rankscope.diagnose.base.stages import long_stage
from rankscope.diagnose.rules.table import find, open_case
from rankscope.diagnose.verdict import judge
from rankscope.records.evidence import Contention, OperatorExcess, RankCpu, StageBalance, StageWork
from rankscope.trace.files.load import load_traces
from support.verdict_kinds import evidence

from .test_worlds import NOISE, cost_ms, report_of
from .worlds import US, Fault, Item, Mesh, pipeline, simulate

STEPS, PERIOD = 4, 100_000
"""Steps of the job below, and their length, us."""
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def stage(tmp_path, rank: int, *events: tuple[str, float, float]) -> None:
    """Write the trace of one rank: each event with its begin and end in the step, us; ``gloo:`` on another thread."""
    found = []
    for step in range(STEPS):
        at = step * PERIOD
        found.append({"name": f"ProfilerStep#{step}", "cat": "user_annotation", "tid": 1, "ts": at, "dur": PERIOD})
        for name, begin, end in events:
            other = name.startswith("gloo:")
            category = "user_annotation" if other else "cpu_op"
            found.append({"name": name, "cat": category, "tid": 1 + other, "ts": at + begin, "dur": end - begin})
    trace = {
        "distributedInfo": {"rank": rank, "world_size": 2, "backend": "gloo"},
        "traceEvents": [{"ph": "X", "pid": 7, **event} for event in found],
    }
    (tmp_path / f"rank_{rank}.json").write_text(json.dumps(trace))


@pytest.fixture
def two_stages(tmp_path):
    """Rank 0 computes 20 ms, sends, waits for the gradient, computes 20 ms; rank 1 30 ms and 10 ms between.

    Rank 0 receives on the thread that sends: its receipt begins 0.1 ms before the range of its send ends.
    """
    stage(
        tmp_path, 0,
        ("aten::mm", 0, 20_000), ("c10d::send", 20_010, 20_020), ("gloo:send", 20_050, 30_000),
        ("c10d::recv_", 20_100, 20_110), ("gloo:recv", 29_900, 70_600), (BACKWARD, 70_700, 90_700),
        ("aten::mm", 70_710, 90_700),
    )  # fmt: skip
    stage(
        tmp_path, 1,
        ("c10d::recv_", 10, 20), ("gloo:recv", 50, 29_950), ("aten::mm", 30_000, 60_000), (BACKWARD, 60_000, 70_000),
        ("aten::mm", 60_010, 70_000), ("c10d::send", 70_010, 70_020), ("gloo:send", 70_050, 70_650),
        ("aten::add_", 70_700, 70_800),
    )  # fmt: skip
    return analyse_window(load_traces([tmp_path], cache=False).traces)


def test_a_receipt_behind_a_send_on_one_thread_is_replayed(two_stages) -> None:
    """10 ms of sending lie between the issue of the receipt and its begin: in no step may the replay lose them."""
    assert two_stages.refused is None
    assert two_stages.replay.error < 1e-9


def test_forward_and_backward_of_each_stage(two_stages) -> None:
    found = stage_balance([two_stages])
    assert found is not None
    assert [s.ranks for s in found.stages] == [[0], [1]]
    assert [s.backward_ms for s in found.stages] == [pytest.approx(20, abs=0.1), pytest.approx(10, abs=0.1)]
    assert found.stages[1].forward_ms == pytest.approx(30, abs=0.3)


@pytest.mark.data
def test_what_the_longest_stage_costs() -> None:
    """Of four stages the second has 700 us more in each of four micro-batches than the others' 500: 2.8 ms a step."""
    mesh = Mesh(pp=4, dp=2)
    more = [
        Item("work", i.host, i.device + 700 * US, stage=1) if i.what == "work" and i.stage == 1 else i
        for i in pipeline(4)
    ]
    found = report_of(simulate(more, mesh, noise=NOISE))
    (finding,) = [f for f in found.findings if f.kind == "uneven_stages"]
    extra = [Fault(rank, Item("work", device=700 * US, stage=1), times=4) for rank in (2, 3)]
    truth = cost_ms(pipeline(4), mesh, extra, noise=NOISE)
    assert (finding.ranks, found.verdict.kind, found.verdict.ranks) == ([2, 3], "pipeline", [])
    assert finding.cost_ms_per_step == pytest.approx(truth, rel=0.15)
    assert found.actions[0].ranks == [2, 3]
    work = finding.evidence[1]  # each kernel once, however many calls wait for it; NCCL beside makes some slower
    assert work.startswith("Work per step: stage 0 (ranks 0, 1)")  # these traces do not show what is backward
    per_step = [float(ms) for ms in re.findall(r"([0-9.]+) ms", work)]
    assert per_step == pytest.approx([4 * 0.5, 4 * (0.5 + 0.7), 4 * 0.5, 4 * 0.5], rel=0.03)


BALANCE = StageBalance(
    stages=[StageWork(ranks=[r], forward_ms=20.0 + 20.0 * r, backward_ms=20.0) for r in (0, 1)],
    lowered_ms=18.0, error_ms=2.0, even_ms=9.0,
    operators=[OperatorExcess(name="aten::mm", calls=184.0, peers_calls=64.0, ms=30.0, peers_ms=9.0)],
)  # fmt: skip


def told(**more):
    compute = {0: 40.0, 1: 60.0}
    return evidence(
        ranks=2, pipeline=True, staged=True, micro_batches=4, compute_ms=compute, **{"stages": BALANCE, **more}
    )


def test_the_longest_stage_is_the_verdict_and_no_rank_is_named() -> None:
    case = open_case(told())
    actions = advise(case)
    found = judge(case, actions)
    assert (found.kind, found.ranks, found.cost_ms_per_step) == ("pipeline", [], 18.0)
    assert found.sentence == (
        "Pipeline stage 1 (rank 1) computes 60 ms a step, the other one 40 ms: at that level each 100 ms step would "
        "save 18 ± 2 ms (18 %)."
    )
    assert "leave 20 % idle" in found.why[-1]  # one of 4 + 1 places
    assert [a.code for a in actions[:3]] == ["lighten_stage", "even_stages", "more_micro_batches"]
    assert (actions[0].saves_ms, actions[1].saves_ms) == (18.0, 9.0)
    assert "120 more aten::mm" in actions[0].text


@pytest.mark.parametrize(
    "more",
    [
        {"stages": replace(BALANCE, lowered_ms=3.9)},  # 1.9 ms are sure, and 2 % of the step matter
        {"stages": replace(BALANCE, lowered_ms=6.9), "device": False},  # 4.9 ms are sure, of 5 %
    ],
)
def test_what_costs_too_little_is_no_verdict(more: dict) -> None:
    assert "No rank is to blame" in judge(open_case(told(**more)), []).sentence


def waited(ms: float, **more) -> Contention:
    """Rank 1 waits longer for a CPU than rank 0."""
    ranks = [RankCpu(rank=r, host="node", held_ms=[1.0 + r * ms] * 6, cpu_ms=[60.0] * 6) for r in (0, 1)]
    return Contention(ranks=ranks, gains_ms=[1.0] * 6, **more)


def test_the_machine_s_part_is_taken_off() -> None:
    """Of 20 ms more than the other stage, half is time on the run queue: half of the cost is left."""
    found = long_stage(told(device=False, contention=waited(10.0)))
    assert found is not None
    assert found.cost_ms == 9.0
    assert long_stage(told(device=False, contention=waited(20.0))) is None


def test_a_stage_with_no_more_operators_may_share_its_cores() -> None:
    beside = {"device": False, "contention": waited(0.0, beside_ms={"node": 50.0})}  # they explain up to 25 ms
    assert long_stage(told(**beside)) is not None
    assert long_stage(told(**beside, stages=replace(BALANCE, operators=[]))) is None


def test_a_busier_machine_is_the_verdict_and_the_stage_a_finding() -> None:
    busy = replace(waited(0.0), gains_ms=[30.0] * 6)
    case = open_case(told(device=False, contention=busy))
    assert judge(case, advise(case)).kind == "contended"
    assert {"contended", "uneven_stages"} <= {f.kind for f in find(case)}
