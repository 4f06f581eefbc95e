"""Hand-made evidence for each kind of verdict, and the report of it."""

from __future__ import annotations

from dataclasses import replace

from rankscope.analysis.diagnosis import empty_report
from rankscope.causes.wording import amount
from rankscope.diagnose.advice.table import advise
from rankscope.diagnose.rules.table import find, open_case
from rankscope.diagnose.verdict import judge
from rankscope.records.changes import (
    BesideCalls,
    Chain,
    Changes,
    DoubledBatch,
    ExpertParallel,
    PlainAttention,
    SlowLink,
    SmallCalls,
    TensorParallel,
    UnalignedProduct,
    UnevenAttention,
)
from rankscope.records.evidence import (
    Contention,
    Evidence,
    GroupDelay,
    JobEnded,
    OperatorExcess,
    Place,
    RankCpu,
    StageBalance,
    StageWork,
    Suspect,
)
from rankscope.records.report import ClusterReport
from rankscope.records.rows import Efficiency, HealthRow, MemoryFrame, MemoryRow, RankIdle, RankSummary, WorkGroup
from rankscope.records.run_steps import RankStepTimes, RunSteps
from rankscope.report.formats import terminal
from support.first_screen import first_screen

__all__ = ["KINDS", "page_of", "report_of", "shown"]


def evidence(*suspects: Suspect, ranks: int = 4, **more) -> Evidence:
    """Return the evidence of a job of four ranks with steps of 100 ms."""
    base = {
        "ranks": list(range(ranks)), "steps": 6, "step_ms": 100.0, "mean_step_ms": 100.0, "calls": 60,
        "matched_pct": 100.0, "overlap_pct": 80.0, "compute_pct": 60.0, "exposed_comm_pct": 25.0, "idle_pct": 15.0,
        "world_size": ranks + len(more.get("missing", ())), "shapes": True, "visible_pct": 1.8,
    }  # fmt: skip
    return Evidence(**{**base, "suspects": list(suspects), **more})


def late(rank: int, cost: float, cause: str, gains: list[float] | None = None, **more) -> Suspect:
    """Return a rank that costs ``cost`` ms in each of six steps, 90 % of it for one cause."""
    return Suspect(
        rank=rank, cost_ms=cost, error_ms=cost / 10, gains_ms=gains or [cost] * 6, excess_ms=cost,
        explained={cause: 0.9 * cost}, held_ms=1.1 * cost, **{"p_value": 1 / 64, **more},
    )  # fmt: skip


EXTRA = OperatorExcess(
    name="aten::mm", calls=317.0, peers_calls=67.0, ms=45.1, peers_ms=8.7, line="evaluate() (train.py:212)"
)
H100 = Efficiency(
    device="NVIDIA H100 80GB HBM3", peak_tflops=989.0, peak_gb_s=3350.0, shapes=True, tflop_per_step=42.0, tflops=420.0,
    peak_pct=42.5, counted_pct=57.0, plain_ms=0.0, small_kernels=20.0, small_ms=0.1, compiled=False, graphs=False,
    groups=[
        WorkGroup(name="matrix products", ms_per_step=58.0, kernels_per_step=99.0, tflops=739.0, peak_pct=74.7),
        WorkGroup(
            name="element-wise, norms and losses", ms_per_step=23.6, kernels_per_step=180.0, gb_s=2900.0, peak_pct=86.6
        ),
        WorkGroup(name="optimizer", ms_per_step=10.2, kernels_per_step=164.0),
    ],
)  # fmt: skip
LOG = RunSteps(
    attempt=0, steps=200, unprofiled_steps=180, median_ms=80.0, around_ms=80.0,
    rows=[RankStepTimes(rank=r, steps=180, median_ms=80.0, input_pct=37.5 if r == 2 else 0.5) for r in range(4)],
)  # fmt: skip
FULL = MemoryRow(
    attempt=0, window=0, rank=3, file="rank_00003.memory.pickle", peak_allocated_bytes=70 << 30,
    peak_reserved_bytes=78 << 30, end_allocated_bytes=66 << 30, end_reserved_bytes=78 << 30, segment_allocs=40,
    segment_frees=38, device_bytes=80 << 30,
    top=[MemoryFrame(frame="model.py:88 attention", bytes=24 << 30, count=64)],
)  # fmt: skip
BUSY = Contention(
    ranks=[RankCpu(rank=r, host="node", held_ms=[50.0 + 5.0 * r] * 6, cpu_ms=[40.0] * 6) for r in range(4)],
    gains_ms=[50.0] * 6, others_ms={"node": 240.0}, cpus={"node": 4.0},
)  # fmt: skip

KINDS: dict[str, Evidence] = {
    "V1 one rank, its operators and lines are known": evidence(late(1, 38.0, "extra_compute", operators=[EXTRA])),
    "V1 one rank, with a step log that agrees": evidence(
        late(2, 28.0, "input_stall"), run_steps=LOG, recording_ms=20.0
    ),
    "V1 one rank, its pause has a line": evidence(
        late(3, 30.0, "host_pause", lines={"host_pause": {"save() (train.py:88)": 27.0}}), stacks=True
    ),
    "V1 one rank on a CPU": evidence(late(1, 38.0, "slow_compute"), device=False),
    "V1b once": evidence(late(1, 15.0, "recompile", [90.0, 0.0, 0.0, 0.0, 0.0, 0.0], p_value=0.5)),
    "V2 several": evidence(late(1, 30.0, "input_stall"), late(3, 25.0, "host_sync")),
    "V2h a host": evidence(
        *(
            late(r, 20.0, "slow_compute", measured=True, together_ms=22.0, beside=[o for o in range(4, 8) if o != r])
            for r in range(4, 8)
        ),
        ranks=16,
        places=[Place(kind="host", name=f"gpu{n}", ranks=list(range(4 * n, 4 * n + 4))) for n in range(4)],
    ),
    "V2t turns": evidence(
        *(
            late(r, 13.0, "host_pause", [52.0 if s % 4 == r else 0.0 for s in range(8)], p_value=0.25)
            for r in range(4)
        ),
        steps=8,
    ),
    "V3 none": evidence(late(0, 1.2, "slow_compute", p_value=0.3)),
    "V4 bound by the GPU": evidence(
        compute_pct=97.0, exposed_comm_pct=1.0, idle_pct=2.0, efficiency=H100, uses=["foreach_optimizer", "fsdp2"],
        work_gains={"element-wise, norms and losses": 21.0, "optimizer": 7.2, "copies for sharding": 0.4},
    ),
    "V4 bound by the GPU, without shapes": evidence(
        compute_pct=97.0, exposed_comm_pct=1.0, idle_pct=2.0, shapes=False, uses=["compile"]
    ),
    "V4 bound by the GPU, its kernels can be faster": evidence(
        compute_pct=97.0, exposed_comm_pct=1.0, idle_pct=2.0, efficiency=H100, uses=["ddp", "fused_optimizer"],
        work_gains={"element-wise, norms and losses": 21.0},
        changes=Changes(
            product=UnalignedProduct(
                operator="aten::mm", sizes="[8192, 768] x [768, 50257]", pad={50257: 50304}, tflops=95.4,
                aligned_tflops=762.4, low_ms=12.5, high_ms=12.9,
            ),
            attention=PlainAttention(kernels=102.0, ms=16.3, fallback=True, low_ms=14.1, high_ms=17.4),
            beside=BesideCalls(ratio=1.31, error=0.08, operator="aten::mm", high_ms=2.4),
            chain=Chain(operators=["aten::add", "aten::native_layer_norm"], count=12.0, ms=4.2),
        ),
    ),
    "V5 bound by the host": evidence(
        host_ms=41.0, most_host_ms=44.0, host_gain_ms=50.0, launches=1654.0, kernel_us=1.4, often="aten::add",
        often_calls=1504.0, idle_pct=41.0,
    ),
    "V6 bound by input": evidence(input_ms=42.0, idle_pct=42.0, compute_pct=55.0, exposed_comm_pct=3.0),
    "V6 copies from pageable memory": evidence(
        pageable_ms=30.0, copy_ms=28.0, compute_pct=57.0, exposed_comm_pct=3.0, idle_pct=12.0
    ),
    "V7 bound by communication, DDP": evidence(
        transfer_ms=28.0, network_gain_ms=26.0, overlap_gain_ms=20.0, uses=["ddp"], modules={"DDP bucket 1": 22.0}
    ),
    "V7 bound by communication, many small calls": evidence(
        transfer_ms=28.0, network_gain_ms=26.0, overlap_gain_ms=20.0, uses=["ddp"], modules={"DDP bucket 1": 22.0},
        changes=Changes(
            small_calls=[
                SmallCalls(
                    ranks=[0, 1, 2, 3], kind="all_reduce", calls=148.0, fixed_us=41.0, mean_us=44.0, megabytes=0.02,
                    high_ms=6.0,
                )
            ],
            link=SlowLink(
                ranks=[0, 1, 2, 3], kind="all_reduce", link="NVLink 4", link_gb_s=450.0, best_gb_s=21.0, calls=30,
                low_ms=8.0, high_ms=9.0,
            ),
            batch=DoubledBatch(low_ms=4.0, high_ms=9.0, twice_ms=182.0),
        ),
    ),
    "V7 bound by communication, tensor and expert parallel": evidence(
        transfer_ms=28.0, network_gain_ms=26.0, overlap_gain_ms=20.0,
        efficiency=replace(
            H100,
            groups=[WorkGroup(name="matrix products", ms_per_step=30.0, kernels_per_step=99.0, peak_pct=31.0)],
        ),
        changes=Changes(
            tensor=TensorParallel(size=2, ranks=[0, 1], hosts=1, high_ms=12.0, halved_ms=11.0, others_ms=12.0),
            experts=ExpertParallel(high_ms=9.0, others_ms=14.0, balanced_ms=3.0),
            context=UnevenAttention(
                group=[0, 1, 2, 3], late=[2, 3], longest_ms=21.0, mean_ms=12.0, low_ms=4.0, high_ms=8.0
            ),
        ),
    ),
    "V7 a slow link": evidence(
        slow_groups=[GroupDelay(ranks=[2, 3], kinds=["all_reduce"], ratio=3.1, cost_ms=22.0, error_ms=1.5)]
    ),
    "V7 a slow link of one rank": evidence(
        pipeline=True, compute_ms={0: 40.0, 1: 40.0, 2: 41.0, 3: 40.0},
        slow_groups=[
            GroupDelay(
                ranks=[0, 1, 2], kinds=["message"], ratio=9.8, cost_ms=16.0, error_ms=1.2, pairs=[[0, 1], [1, 2]]
            )
        ],
    ),
    "V8 memory is the limit": evidence(
        allocator_ms=8.0, host_ms=12.0, idle_pct=12.0, memory=[FULL],
        work_gains={"copies for sharding": 3.0}, uses=["fsdp2", "compile"],
    ),
    "V9 the machine is busy": evidence(late(1, 8.0, "slow_compute", p_value=0.4), contention=BUSY, device=False),
    "V10 a job of one rank": evidence(
        ranks=1, calls=0, input_ms=42.0, compute_pct=58.0, exposed_comm_pct=0.0, idle_pct=42.0,
        refused="only one rank was recorded",
    ),
    "V10b one rank of many": evidence(ranks=1, missing=[1, 2, 3], compute_pct=90.0),
    "V11 ranks are missing": evidence(late(1, 38.0, "input_stall"), missing=[4, 5, 6, 7]),
    "V12 a pipeline": evidence(
        pipeline=True, compute_ms={0: 40.0, 1: 40.0, 2: 41.0, 3: 58.0}, waiting_ms=30.0, host_ms=10.0
    ),
    "V12 a pipeline of 8 micro-batches": evidence(
        pipeline=True, compute_ms={0: 40.0, 1: 40.0, 2: 41.0, 3: 58.0}, waiting_ms=30.0, host_ms=10.0, micro_batches=8
    ),
    "V12b a pipeline with a longer stage": evidence(
        pipeline=True, staged=True, compute_ms={0: 42.0, 1: 42.0, 2: 42.0, 3: 48.0}, waiting_ms=30.0, host_ms=10.0,
        micro_batches=8,
        stages=StageBalance(
            stages=[StageWork(ranks=[r], forward_ms=14.0 + 6.0 * (r == 3), backward_ms=28.0) for r in range(4)],
            lowered_ms=11.0, error_ms=1.2, even_ms=6.5,
            operators=[OperatorExcess(name="aten::mm", calls=100.0, peers_calls=96.0, ms=40.0, peers_ms=34.0)],
        ),
    ),
    "V13 no step marks": evidence(refused="the traces have no step marks"),
    "V13 calls do not match": evidence(matched_pct=11.0, unmatched={"process group unknown": 40}),
    "V14 the job ended before its first step": evidence(
        ranks=0, missing=[0, 1], lost={"ended by ValueError: no such corpus": [0, 1]},
        ended=JobEnded(exit_code=1, steps=0, traces=False, notes=["no training step was seen"]),
    ),
    "V14 no rank began": evidence(
        ranks=0, ended=JobEnded(exit_code=2, steps=0, traces=False, notes=["no rank reached `import torch`"]),
    ),
    "V14 the job was too short": evidence(
        ranks=0, missing=[0, 1], ended=JobEnded(
            exit_code=0, steps=7, traces=False,
            notes=["the job ended after 7 steps and the first window records from step 13: shorten the schedule"],
        ),
    ),
    "V14 out of memory before a step was recorded": evidence(
        ranks=0, missing=[0], memory=[replace(FULL, window=None, requested_bytes=2 << 30)],
        ended=JobEnded(exit_code=1, steps=3, traces=False),
    ),
    "V15 recorded with stacks": evidence(
        host_ms=41.0, launches=900.0, kernel_us=8.0, stacks=True,
        host_lines={"unflatten() (utils/_pytree.py:1278)": 3.6, "forward() (model/net.py:40)": 1.1},
    ),
    "V16 the replay misses": evidence(refused="replaying the window unchanged misses its length by 7.2 %"),
}  # fmt: skip


def report_of(case: Evidence) -> ClusterReport:
    """Return the report of this evidence: verdict, findings, actions, and a row for each rank."""
    opened = open_case(case)
    report = empty_report(None)
    report.findings, report.actions = find(opened), advise(opened)
    report.verdict = judge(opened, report.actions)
    idle = case.waiting_ms + case.transfer_ms + case.input_ms + case.host_ms
    report.ranks = [
        RankSummary(
            rank=r, device="NVIDIA H100 80GB HBM3" if case.device else "CPU", steps=case.steps,
            step_ms={"median": case.step_ms, "p95": case.step_ms}, compute_pct=case.compute_pct,
            exposed_comm_pct=case.exposed_comm_pct, memcpy_pct=0.0,
            idle_pct=100.0 - case.compute_pct - case.exposed_comm_pct,
        )
        for r in case.ranks
    ] + [RankSummary(rank=r, status="missing") for r in case.missing]  # fmt: skip
    report.idle = [
        RankIdle(
            rank=r, waiting_ms=case.waiting_ms, transfer_ms=case.transfer_ms, input_ms=case.input_ms,
            host_ms=case.host_ms, copy_ms=0.0,
        )
        for r in case.ranks
        if idle
    ]  # fmt: skip
    report.health = [HealthRow(rank=r) for r in case.ranks[:0]]
    report.efficiency, report.what_if, report.pulse = case.efficiency, case.what_if, case.run_steps
    report.memory = case.memory
    return report


def shown(name: str, case: Evidence) -> str:
    """What a terminal of 80 columns shows, and the list of what to do as the page has it."""
    report = report_of(case)
    verdict = report.verdict
    facts = f"kind {verdict.kind}, ranks {verdict.ranks}, cause {verdict.cause}, reason {verdict.reason}"
    head = terminal.render(report, 80).partition("\n\n")[0]
    todo = [
        f"  {action.code}: {action.text} [{action.kind}"
        + (f", {amount(action.saves_ms)}" if action.saves_ms is not None else "")
        + f"; check: {action.check}]"
        for action in report.actions
    ]
    return "\n".join([f"== {name}", facts, "", head, "", "To do", *(todo or ["  nothing"]), ""])


def page_of(name: str, page: str) -> str:
    """What the page shows first."""
    return f"== {name}\n{first_screen(page)}\n"
