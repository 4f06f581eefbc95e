"""Hand-made reports for the tests of all writers."""

from __future__ import annotations

import pytest

from rankscope.records.from_script import RegionRow, RunMark, Throughput
from rankscope.records.report import (
    Action,
    ClockReport,
    ClusterReport,
    CollectivesReport,
    Finding,
    ReportError,
    RunInfo,
    SourceFile,
    Verdict,
)
from rankscope.records.rows import (
    CriticalPath,
    Efficiency,
    GroupRow,
    HealthRow,
    KernelRow,
    LaunchQueue,
    MemoryFrame,
    MemoryRow,
    ModuleRow,
    PathPart,
    PathPiece,
    RankIdle,
    RankSummary,
    StepRow,
    WorkGroup,
)
from rankscope.records.run_steps import RankStepTimes, RecordedRange, RunSteps, StepBucket
from rankscope.records.running.between import BetweenVerdict, SlowPattern

GEMM = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)


def _rank(rank: int, shares: tuple[float, float, float, float], step: float, **more: object) -> RankSummary:
    compute, exposed, copies, idle = shares
    values: dict[str, object] = {
        "host": f"node-{rank // 8}",
        "device": "NVIDIA H100 80GB HBM3",
        "steps": 6,
        "step_ms": {"median": step, "p95": step * 1.04},
        "comm_pct": exposed + 4.0,
        "overlap_pct": 100 * 4.0 / (exposed + 4.0),
        "wait_ms_per_step": 1.5,
        "caused_wait_ms_per_step": 0.5,
    }
    values.update(more)
    return RankSummary(
        rank=rank, compute_pct=compute, exposed_comm_pct=exposed, memcpy_pct=copies, idle_pct=idle, **values
    )


def _between() -> BetweenVerdict:
    every = SlowPattern(
        kind="every", ranks=[1], place="input", period=25, first=24, last=1199, size_ms=58.0, cost_ms=2.32,
        error_ms=0.1, seen=46, of=48, p_value=3e-40,
        sentence="Rank 1 is 58 ms late in every 25th step, seen 46 of 48 times, in the data loader; 2.3 ms a step.",
    )  # fmt: skip
    saved = SlowPattern(kind="checkpoint", ranks=[0], period=400, first=399, last=1199, size_ms=900.0, cost_ms=2.25,
                        seen=3, of=3, sentence="A checkpoint of rank 0, every 400th step, takes 900 ms.")  # fmt: skip
    return BetweenVerdict(
        kind="named", ranks=[1], steps=1150, step_ms=112.0, patterns=[every, saved], held_ms=0.4,
        sentence=every.sentence, notes=["the last 1,150 of 1,200 steps were compared"],
        window="The recorded steps (steps 13 to 18) have no such step in them.",
    )  # fmt: skip


def _steps(ranks: int, steps: int, late: int | None, base: float = 112.0) -> list[StepRow]:
    return [
        StepRow(
            attempt=0,
            window=0,
            step=13 + step,
            rank=rank,
            duration_ms=base + (rank * 7 + step * 3) % 5 / 2,
            compute_ms=40.0,
            comm_ms=8.0,
            exposed_comm_ms=2.0 if rank == late else 50.0 + (rank + step) % 3,
            idle_ms=62.0 if rank == late else 8.0 + (step * rank) % 4,
            wait_ms=0.4 if rank == late else 52.0 + step % 3,
            lateness_ms=58.0 + step if rank == late else -0.2 + (rank * step) % 3 / 5,
        )
        for rank in range(ranks)
        for step in range(steps)
    ]


@pytest.fixture
def gpu_straggler() -> ClusterReport:
    """Two H100s, rank 1 with a slow data loader."""
    slow = {"wait_ms_per_step": 0.41, "caused_wait_ms_per_step": 52.6}
    return ClusterReport(
        run=RunInfo(
            source="run",
            run_id="llama-8b-ddp",
            command=["rankscope", "run", "--nproc-per-node", "2", "train.py", "--batch", "8"],
            world_size=2,
            hosts=["node-0"],
            devices=["NVIDIA H100 80GB HBM3"],
            backend="nccl",
            versions={"torch": "2.11.0", "nccl": "2.28.9", "rankscope": "0.1.0"},
            windows=["attempt 0, window 0: steps 13 to 18"],
            exit_code=0,
            recording_overhead_pct=41.3,
            longest_stall_ms=1210.0,
        ),
        ranks=[
            _rank(0, (38.217, 47.113, 1.214, 13.456), 112.4, wait_ms_per_step=52.6, caused_wait_ms_per_step=0.41),
            _rank(1, (37.9, 3.2, 1.2, 57.7), 112.6, **slow),
        ],
        clock=ClockReport(method="collective_ends", offsets_us={"0": 0.0, "1": 312.4}, error_us=18.2),
        collectives=CollectivesReport(count=252, matched_pct=99.2, method="seq", unmatched={"window edge": 2}),
        verdict=Verdict(
            kind="straggler",
            ranks=[1],
            cause="input",
            cost_ms_per_step=60.3,
            cost_error_ms=1.9,
            confidence="high",
            step_ms=112.5,
            share_of_steps_pct=100.0,
            p_value=0.0004,
            between=_between(),
            sentence="Rank 1 holds up every step: 60.3 ± 1.9 ms of each 112 ms step (54 %). It waits for input.",
            why=[
                "Rank 1 arrives last at 248 of 250 matched collectives, 58 to 63 ms after rank 0 (clock error 18 µs).",
                "In that time its main thread sits in DataLoader.__next__: 60.8 ms per step, on rank 0 it is 0.3 ms.",
                "Replaying the steps without that time gives 52.2 ms instead of 112.5 ms.",
            ],
            next=[
                "Give rank 1's DataLoader more workers (num_workers is 0) or find out why its storage is slow.",
                "Then run rankscope again: 52 ms per step is what to expect.",
            ],
        ),
        findings=[
            Finding(
                id="input-1",
                kind="input",
                ranks=[1],
                cost_ms_per_step=60.3,
                confidence="high",
                title="Rank 1 waits for its data loader",
                evidence=["60.8 ms per step in DataLoader.__next__", "The device is idle for 57.7 % of the window"],
                advice=["Raise num_workers above 0", "Compare the read speed of both hosts' storage"],
            ),
            Finding(
                id="exposed-comm",
                kind="exposed_comm",
                ranks=[0, 1],
                cost_ms_per_step=0.4,
                confidence="medium",
                title="Gradient all-reduce is hidden except for its last bucket",
                evidence=["Transfer is 3.1 ms per step, 0.4 ms of it exposed"],
                advice=["Nothing to do while the input is slow"],
            ),
            Finding(
                id="profiler-cost",
                kind="recording",
                ranks=[],
                cost_ms_per_step=None,
                confidence="low",
                title="Recording made steps 41 % longer",
                evidence=["Median 79.6 ms before the window, 112.5 ms inside"],
                advice=["Read shares, not absolute times, of host-bound steps"],
            ),
        ],
        actions=[
            Action(
                code="mend_input",
                text="Give rank 1's DataLoader more workers.",
                ranks=[1],
                kind="replay",
                saves_ms=60.3,
                error_ms=1.9,
                check="less than 1 ms a step in the data loader",
            ),
            Action(code="compile", text="torch.compile the model.", ranks=[0, 1], kind="bound", saves_ms=4.2),
        ],
        efficiency=Efficiency(
            device="NVIDIA H100 80GB HBM3",
            peak_tflops=989.0,
            peak_gb_s=3350.0,
            shapes=True,
            tflop_per_step=11.1,
            tflops=98.9,
            peak_pct=10.0,
            counted_pct=60.0,
            plain_ms=0.0,
            small_kernels=120.0,
            small_ms=0.4,
            compiled=False,
            graphs=False,
            groups=[
                WorkGroup(
                    name="matrix products",
                    ms_per_step=15.0,
                    kernels_per_step=99.0,
                    tflops=740.0,
                    peak_pct=75.0,
                    bound="math",
                ),
                WorkGroup(
                    name="element-wise, norms and losses",
                    ms_per_step=9.0,
                    kernels_per_step=180.0,
                    gb_s=2900.0,
                    peak_pct=87.0,
                    bound="memory",
                ),
            ],
        ),
        hta={
            "temporal_breakdown": {
                "0": {"idle_time_pctg": 13.4, "compute_time_pctg": 38.2, "non_compute_time_pctg": 48.4},
                "1": {"idle_time_pctg": 57.7, "compute_time_pctg": 37.9, "non_compute_time_pctg": 4.4},
            },
            "idle_breakdown": {"0": [{"stream": 7, "idle_category": "host_wait", "idle_time": 812.5}]},
        },
        idle=[
            RankIdle(rank=0, waiting_ms=51.2, transfer_ms=1.8, input_ms=0.3, host_ms=14.8, copy_ms=1.36),
            RankIdle(rank=1, waiting_ms=0.3, transfer_ms=3.3, input_ms=60.8, host_ms=4.1, copy_ms=1.35),
        ],
        steps=_steps(2, 6, 1),
        groups=[
            GroupRow(
                group="default_pg",
                ranks=[0, 1],
                collective="allreduce",
                dtype="BFloat16",
                calls_per_step=21.0,
                megabytes_per_call=26.2,
                wait_ms_per_step=26.5,
                transfer_ms_per_step=3.1,
                exposed_ms_per_step=27.1,
                bus_gb_s=181.4,
            ),
            GroupRow(
                group="dp_shard | tricky",
                ranks=[0, 1],
                collective="_allgather_base",
                dtype=None,
                calls_per_step=1.0,
                megabytes_per_call=None,
                wait_ms_per_step=0.0,
                transfer_ms_per_step=0.02,
                exposed_ms_per_step=None,
                bus_gb_s=None,
            ),
        ],
        modules=[
            ModuleRow(
                module=f"bucket {number}",
                group="default_pg",
                ranks=[0, 1],
                collective="all_reduce",
                calls_per_step=1.0,
                megabytes_per_call=26.2,
                wait_ms_per_step=1.3,
                transfer_ms_per_step=0.15,
                exposed_ms_per_step=exposed,
                bus_gb_s=181.4,
            )
            for number, exposed in ((2, 25.9), (1, 1.2))
        ],
        queues=[
            LaunchQueue(
                rank=rank, median_outstanding=level, max_outstanding=912, median_delay_us=delay, starved_pct=starved
            )
            for rank, level, delay, starved in ((0, 431.0, 8123.4, 2.1), (1, 0.0, 9.2, 56.3))
        ],
        regions=[
            RegionRow(
                region="attention",
                ranks=2,
                calls_per_step=32.0,
                host_ms=12.5,
                host_rank=1,
                device_ms=20.5,
                device_rank=0,
                host_ms_by_rank={"0": 12.0, "1": 13.0},
                device_ms_by_rank={"0": 21.0, "1": 20.0},
            )
        ],
        marks=[RunMark(attempt=0, step=500, name="checkpoint", rank=0, ranks=2, values={"gib": 12.0})],
        throughput=Throughput(tokens=65536.0, tokens_per_s=823000.0, tflops_per_rank=412.0, mfu_pct=41.7),
        what_if={"ideal_network": 0.4, "hidden_transfers": 0.4, "even_compute": 0.1, "no_host_overhead": 4.2},
        health=[
            HealthRow(
                rank=rank,
                host="node-0",
                device="NVIDIA H100 80GB HBM3",
                samples=4,
                sm_mhz=1755.0,
                sm_max_mhz=1980.0,
                power_w=612.5,
                power_limit_w=700.0,
                temperature_c=64.0 + rank,
                utilisation_pct=97.0,
                throttle={"power limit": 50.0} if rank else {},
                ecc_corrected=0,
                cpus=32.0,
                load_1m=11.5,
            )
            for rank in range(2)
        ],
        pulse=RunSteps(
            attempt=0,
            steps=800,
            unprofiled_steps=792,
            median_ms=79.6,
            around_ms=80.1,
            typical=True,
            windows=[RecordedRange(first=12, last=18)],
            buckets=[StepBucket(first=0, last=0)]
            + [
                StepBucket(
                    first=first,
                    last=first + 1,
                    step_ms=79.0 + first % 5,
                    slowest_ms=84.0 + first % 3,
                    slowest_rank=1,
                    input_ms=60.0,
                    input_rank=1,
                )
                for first in range(1, 799, 2)
            ],
            rows=[
                RankStepTimes(
                    rank=rank,
                    steps=792,
                    median_ms=79.6,
                    p99_ms=85.0,
                    longest_ms=86.0,
                    longest_step=401,
                    input_pct=75.25 * rank,
                    gc_ms_per_step=0.125,
                    drift_pct=1.5,
                )
                for rank in range(2)
            ],
            notes=["no step times of 1 of 3 ranks, the first of them rank 2"],
        ),
        critical_path=CriticalPath(
            attempt=0,
            window=0,
            step=14,
            step_ms=100.0,
            parts=[PathPart(rank=1, kind="host", ms_per_step=60.0), PathPart(rank=0, kind="launch", ms_per_step=0.5)],
            pieces=[
                PathPiece(rank=1, kind="host", name="waiting for input", start_ms=0.0, duration_ms=50.0),
                PathPiece(rank=1, kind="compute", name="aten::mm", start_ms=50.0, duration_ms=0.2),
                PathPiece(rank=0, kind="transfer", name="all_reduce of dp", start_ms=50.2, duration_ms=49.8),
            ],
        ),
        memory=[
            MemoryRow(
                attempt=0,
                window=0,
                rank=0,
                file="rank_00000.memory.pickle",
                peak_allocated_bytes=3 * 2**30,
                peak_reserved_bytes=5 * 2**30,
                end_allocated_bytes=2**30,
                end_reserved_bytes=5 * 2**30,
                segment_allocs=12,
                segment_frees=0,
                complete=False,
                top=[MemoryFrame(frame="train.py:41 forward", bytes=2**30, count=24)],
            )
        ],
        kernels=[
            KernelRow(
                name=name,
                category=category,
                ms_per_step=time,
                launches_per_step=launches,
                share_pct=time / 45 * 100,
                max_rank=1,
                max_over_median=1.01,
            )
            for name, category, time, launches in [
                ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "gemm", 18.2, 96.0),
                (GEMM, "elementwise", 7.41, 312.0),
                ("triton_red_fused__to_copy_add_mul_native_layer_norm_backward_sum_12", "triton", 5.2, 48.0),
                ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "comm", 8.1, 21),
            ]
        ],
        sources=[
            SourceFile(path="attempt_0/window_000/rank_00000.trace.json.gz", status="used", rank=0),
            SourceFile(
                path="attempt_0/window_000/rank_00001.trace.json.gz",
                status="used",
                rank=1,
                repairs={"negative_duration": 3},
            ),
            SourceFile(path="notes.json", status="ignored", reason="no traceEvents"),
        ],
    )


@pytest.fixture
def cpu_balanced() -> ClusterReport:
    """Two gloo ranks on CPUs, nothing wrong."""
    return ClusterReport(
        run=RunInfo(source="run", run_id="demo", world_size=2, hosts=["laptop"], devices=["cpu"], backend="gloo"),
        ranks=[_rank(r, (81.0, 12.0, 0.0, 7.0), 40.2 + r / 10, device="cpu", host="laptop") for r in range(2)],
        clock=ClockReport(method="host_clock"),
        collectives=CollectivesReport(count=36, matched_pct=100.0, method="order"),
        verdict=Verdict(
            kind="balanced",
            confidence="medium",
            step_ms=40.2,
            sentence="No rank holds the others back.",
            why=["The largest mean lateness is 0.4 ms, within the noise of 0.9 ms."],
            next=["81 % of the time is compute: look at the operators if a step should be faster."],
        ),
        steps=_steps(2, 6, None, 40.0),
        kernels=[
            KernelRow(name="aten::addmm", category="gemm", ms_per_step=21.0, launches_per_step=24.0, share_pct=61.0)
        ],
        sources=[SourceFile(path=f"rank_{r}.json", status="used", rank=r) for r in range(2)],
    )


@pytest.fixture
def many_ranks(gpu_straggler: ClusterReport) -> ClusterReport:
    """64 ranks on 8 nodes, rank 37 late."""
    report = gpu_straggler
    ranks = []
    for rank in range(64):
        compute = 60.0 + rank % 7
        exposed = 1.1 if rank == 37 else 24.0 - rank % 5
        late = {"caused_wait_ms_per_step": 480.0} if rank == 37 else {}
        ranks.append(_rank(rank, (compute, exposed, 0.5, 99.5 - compute - exposed), 112.0 + rank % 9 / 10, **late))
    report.ranks = ranks
    report.run.world_size = 64
    report.run.hosts = [f"node-{n}" for n in range(8)]
    report.idle = [
        RankIdle(rank=r, waiting_ms=20.0, transfer_ms=4.0, input_ms=1.0, host_ms=9.0, copy_ms=0.5) for r in range(64)
    ]
    report.steps = _steps(64, 40, 37)
    report.verdict.ranks = [37]
    report.verdict.sentence = (
        "Rank 37 holds up every step: 60.3 ± 1.9 ms of each 112 ms step (54 %). It waits for input."
    )
    report.kernels = [
        KernelRow(name=f"{GEMM} {n}", category="gemm", ms_per_step=9.0 / (n + 1), launches_per_step=n, share_pct=1.0)
        for n in range(300)
    ]
    return report


@pytest.fixture
def nothing_usable() -> ClusterReport:
    """Rank 2 never appeared, rank 1 is broken, analyses failed."""
    return ClusterReport(
        run=RunInfo(source="traces", world_size=3, notes=["No optimizer step was counted on rank 0."]),
        ranks=[
            RankSummary(rank=0, status="partial", reason="job ended after 2 of 6 steps", steps=2),
            RankSummary(rank=1, status="corrupt", reason="gzip stream ends early"),
            RankSummary(rank=2, status="missing"),
        ],
        clock=ClockReport(method="none"),
        collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
        verdict=Verdict(
            kind="insufficient_data",
            sentence="There is not enough data for a verdict: one of three ranks left a usable trace.",
            why=["Rank 1's trace is cut off, rank 2 left none."],
            next=["Run again with -S schedule=short so that the window fits into the job."],
        ),
        errors=[ReportError(where="hta.temporal_breakdown", message="ValueError: no GPU rows\n  at frame 3")],
        sources=[
            SourceFile(path="rank_1.json.gz", status="unusable", rank=1, reason="gzip stream ends early"),
            SourceFile(path="trace.json", status="unassigned", reason="names no rank"),
        ],
    )


@pytest.fixture(params=["gpu_straggler", "cpu_balanced", "many_ranks", "nothing_usable"])
def any_report(request: pytest.FixtureRequest) -> ClusterReport:
    """Each of the reports above in turn."""
    report: ClusterReport = request.getfixturevalue(request.param)
    return report
