"""Windows with missing parts: marks, records, ranks for some steps, or a stage of the analysis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.small_job import GEMM, NCCL, TRANSFER, Job, event, kernels

from rankscope.analysis.pipeline import analyze
from rankscope.analysis.rank.losses import find_losses
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.windows import analyse
from rankscope.records.report import ClusterReport
from rankscope.trace.files.load import load_traces

Run = Callable[[Job], ClusterReport]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def report(job: Job) -> ClusterReport:
        return analyze(load_traces([job.write(tmp_path / "traces")], cache=False), hta=False)

    return report


def shares(report: ClusterReport, rank: int) -> tuple[float | None, float | None, float | None]:
    row = next(r for r in report.ranks if r.rank == rank)
    return row.compute_pct, row.exposed_comm_pct, row.idle_pct


def notes(report: ClusterReport) -> str:
    return "\n".join(report.run.notes)


# ---------------------------------------------------------------- no marks


@pytest.mark.parametrize("collective_first", [False, True])
def test_without_marks_the_window_is_that_of_the_device(run: Run, collective_first: bool) -> None:
    job = Job(ranks=2, collective_first=collective_first).without_marks()
    report = run(job)
    assert report.errors == []
    work = kernels(job, 0)
    span = max(e["ts"] + e["dur"] for e in work) - min(e["ts"] for e in work)
    assert shares(report, 0)[0] == pytest.approx(100 * 12 * 400 / span)
    assert shares(report, 0)[1] == pytest.approx(100 * 12 * TRANSFER / span, rel=0.01)
    assert report.verdict.kind == "insufficient_data"


def test_without_steps_nothing_is_reported_per_step(run: Run) -> None:
    report = run(Job(ranks=2).without_marks())
    assert report.idle == []
    assert {k.ms_per_step for k in report.kernels} == {None}
    assert {k.launches_per_step for k in report.kernels} == {None}
    assert [(g.calls_per_step, g.wait_ms_per_step, g.transfer_ms_per_step) for g in report.groups] == [(None,) * 3]


def test_one_rank_without_marks_takes_the_steps_of_the_others(run: Run) -> None:
    whole = run(Job(work={1: 560.0}))
    lent = run(Job(work={1: 560.0}).without_marks(2))
    assert (whole.verdict.kind, whole.verdict.ranks) == ("straggler", [1])
    assert (lent.verdict.kind, lent.verdict.ranks, lent.verdict.cause) == ("straggler", [1], whole.verdict.cause)
    assert lent.verdict.cost_ms_per_step == pytest.approx(whole.verdict.cost_ms_per_step, rel=0.05)
    rows = {r.rank: r for r in lent.ranks}
    assert rows[2].steps == 6
    assert rows[2].step_ms["median"] == pytest.approx(rows[0].step_ms["median"], rel=0.02)
    assert "rank 2 was recorded without step marks" in notes(lent)


def test_marks_are_not_lent_to_a_rank_without_a_call_in_common(run: Run) -> None:
    job = Job().without_marks(2).drop(2, lambda e: e["name"] == NCCL)
    assert next(r for r in run(job).ranks if r.rank == 2).steps == 0


# ---------------------------------------------------------------- profilers opened and closed apart


@pytest.mark.parametrize("marks", [True, False])
def test_time_before_the_last_profiler_opened_is_left_out(run: Run, marks: bool) -> None:
    job = Job(begin={1: 700_000.0, 2: 1_200_000.0})
    common = job.first_step_us + 5 * job.step_us
    found = run(job if marks else job.without_marks())
    for rank, pieces in ((0, 11), (1, 11), (2, 12)):  # the others did their first before rank 2 was recorded
        assert shares(found, rank)[0] == pytest.approx(100 * pieces * 400 / common, abs=1)
        waited = 0 if rank == 2 else 400
        assert shares(found, rank)[1] == pytest.approx(100 * (12 * TRANSFER + waited) / common, abs=1)
    assert found.verdict.kind != "straggler"
    assert "recording began up to 1200.0 ms later on ranks 1, 2" in notes(found)


def test_the_slow_rank_is_named_although_windows_opened_at_different_times(run: Run) -> None:
    report = run(Job(work={2: 560.0}, begin={0: 300_000.0, 1: 900_000.0}))
    assert (report.verdict.ranks, report.verdict.cause) == ([2], "slow_compute")
    assert report.verdict.cost_ms_per_step == pytest.approx((160 + 5 * 320) / 6000, abs=0.06)


def test_time_after_the_first_profiler_closed_is_left_out(run: Run) -> None:
    job = Job(ranks=2, steps=8)
    closed = 100.0 + 4 * job.step_us
    # rank 1 stops recording; rank 0 then waits for a rank that is slow unseen
    job.drop(1, lambda e: e["ts"] + e["dur"] > closed).without_marks()
    late = [e for e in job.events[0] if e["ts"] > closed and e["name"] == NCCL]
    late[-1]["dur"] += 500_000.0
    report = run(job)
    assert shares(report, 0)[0] == pytest.approx(100 * 800 / job.step_us, abs=3)
    assert "sooner on rank 1" in notes(report)


def test_less_than_a_step_apart_is_the_usual_case(run: Run) -> None:
    report = run(Job(begin={1: 500.0}))
    assert "recording began up to" not in notes(report)


# ---------------------------------------------------------------- records lost


def test_a_rank_whose_kernels_are_all_lost_has_no_numbers(run: Run) -> None:
    report = run(Job().drop(1, lambda e: e["cat"] == "kernel"))
    row = next(r for r in report.ranks if r.rank == 1)
    assert (row.status, row.compute_pct) == ("partial", None)
    assert "24 launches have no kernel" in (row.reason or "")
    assert [r.rank for r in report.ranks if r.compute_pct is not None] == [0, 2]
    assert report.verdict.ranks == []
    assert any(f.kind == "records_lost" and f.ranks == [1] for f in report.findings)


def test_all_ranks_blind_is_a_report_too(run: Run) -> None:
    job = Job()
    for rank in range(3):
        job.drop(rank, lambda e: e["cat"] == "kernel")
    report = run(job)
    assert [r.status for r in report.ranks] == ["partial"] * 3
    assert report.errors == []
    assert report.verdict.kind == "insufficient_data"


@pytest.mark.parametrize("slow", [None, 1, 2])
def test_a_rank_that_lost_a_third_is_not_compared(run: Run, slow: int | None) -> None:
    """Its compute seems a third shorter than the others': nobody is slow for that."""
    job = Job(ranks=4, work={} if slow is None else {slow: 560.0})
    work = [e["args"]["correlation"] for e in kernels(job, 1) if e["name"] == GEMM]
    gone = work[::3] + work[1::3]
    report = run(job.drop(1, lambda e: e["cat"] == "kernel" and e["args"]["correlation"] in gone))
    row = next(r for r in report.ranks if r.rank == 1)
    assert row.status == "partial"
    assert "8 of 24 launches (33.3 %)" in (row.reason or "")
    assert report.verdict.ranks == ([2] if slow == 2 else [])
    assert "Nothing can be said of rank 1" in " ".join(report.verdict.why) or slow == 2


def test_with_two_ranks_no_peer_is_left_to_compare(run: Run) -> None:
    job = Job(ranks=2)
    gone = [e["args"]["correlation"] for e in kernels(job, 1) if e["name"] == GEMM][::2]
    report = run(job.drop(1, lambda e: e["cat"] == "kernel" and e["args"]["correlation"] in gone))
    assert report.verdict.kind == "insufficient_data"
    assert "rank 1" in report.verdict.sentence


def test_one_lost_record_is_reported_and_changes_no_verdict(run: Run) -> None:
    job = Job(ranks=4, work={3: 560.0})
    gone = kernels(job, 1)[8]["args"]["correlation"]
    report = run(job.drop(1, lambda e: e["cat"] == "kernel" and e["args"]["correlation"] == gone))
    assert next(r for r in report.ranks if r.rank == 1).status == "partial"
    assert report.verdict.ranks == [3]


@pytest.mark.parametrize("synchronised", [True, False])
def test_device_records_that_end_early_leave_the_steps_before(run: Run, synchronised: bool) -> None:
    job = Job(ranks=4, work={3: 560.0})
    kept = kernels(job, 1)[: 4 * 4]  # of four steps
    job.drop(1, lambda e: e["cat"] == "kernel" and e not in kept)
    if not synchronised:
        job.drop(1, lambda e: e["name"] == "cudaDeviceSynchronize")
    report = run(job)
    row = next(r for r in report.ranks if r.rank == 1)
    assert (row.status, row.steps) == ("partial", 4)
    assert "its device records end after step 13, its step marks after step 15" in (row.reason or "")
    assert ("8 kernels are missing" in (row.reason or "")) == synchronised
    assert report.verdict.ranks == [3]


def test_a_recording_of_which_the_begin_is_lost(run: Run) -> None:
    job = Job(ranks=4, work={3: 560.0})
    begin = next(e["ts"] for e in job.events[1] if e["name"] == "ProfilerStep#12")
    report = run(job.drop(1, lambda e: e["ts"] < begin))
    row = next(r for r in report.ranks if r.rank == 1)
    assert (row.status, row.reason) == (
        "partial",
        "its recording begins with step 12, that of most others with step 10",
    )
    assert report.verdict.ranks == [3]


def test_a_recording_that_stopped_before_the_others(run: Run) -> None:
    job = Job(ranks=4, work={3: 560.0})
    end = next(e["ts"] + e["dur"] for e in job.events[1] if e["name"] == "ProfilerStep#13")
    report = run(job.drop(1, lambda e: e["ts"] + e["dur"] > end))
    row = next(r for r in report.ranks if r.rank == 1)
    assert row.status == "partial"
    assert "its recording ends after step 13, that of most others after step 15" in (row.reason or "")
    assert report.verdict.ranks == [3]


def test_a_window_that_began_earlier_does_not_end_early(run: Run) -> None:
    job = Job(ranks=3, steps=7)
    begin = next(e["ts"] for e in job.events[0] if e["name"] == "ProfilerStep#11")
    end = next(e["ts"] + e["dur"] for e in job.events[1] if e["name"] == "ProfilerStep#15")
    for rank in (0, 2):
        job.drop(rank, lambda e: e["ts"] < begin)
    report = run(job.drop(1, lambda e: e["ts"] + e["dur"] > end))
    assert [r.status for r in report.ranks] == ["ok"] * 3


def lost(job: Job, tmp_path: Path) -> list[int]:
    loaded = load_traces([job.write(tmp_path)], cache=False)
    return [found.lost for found in find_losses(loaded.traces)]


def test_the_last_record_is_lost_where_the_host_waited_for_it(tmp_path: Path) -> None:
    job = Job(ranks=2)
    last = kernels(job, 0)[-1]["args"]["correlation"]
    job.drop(0, lambda e: e["cat"] == "kernel" and e["args"]["correlation"] == last)
    assert lost(job, tmp_path / "a") == [1, 0]
    final = max(e["ts"] for e in job.events[0] if e["name"] == "cudaDeviceSynchronize")
    job.drop(0, lambda e: e["name"] == "cudaDeviceSynchronize" and e["ts"] == final)
    assert lost(job, tmp_path / "b") == [0, 0]  # it may have been running still


def test_launches_into_a_graph_have_no_kernels(tmp_path: Path) -> None:
    job = Job(ranks=2)
    for name, ts in (("cudaStreamBeginCapture", 101.0), ("cudaStreamEndCapture", 104.5)):
        job.events[0].append(event("cuda_runtime", name, 4200, 4200, ts, 0.5, {}))
    captured = {"correlation": 9_999}
    job.events[0].append(event("cuda_runtime", "cudaLaunchKernel", 4200, 4200, 102.0, 1.0, captured))
    assert lost(job, tmp_path / "a") == [0, 0]
    job.drop(0, lambda e: "Capture" in e["name"])
    assert lost(job, tmp_path / "b") == [1, 0]


# ---------------------------------------------------------------- clocks and devices of one process


def test_kernels_before_their_launches(run: Run) -> None:
    """The host's clock of rank 0 is 15 us ahead: the first kernel of each step begins before its launch."""
    job = Job(work={1: 560.0})
    for e in job.events[0]:
        if e["cat"] != "kernel":
            e["ts"] += 15.0
    report = run(job)
    assert (report.verdict.ranks, report.verdict.cause) == ([1], "slow_compute")
    assert "rank 0: kernels seem to begin before their launches; its host times are taken 9.0 us earlier" in notes(
        report
    )
    assert all(q.median_delay_us >= 0 for q in report.queues)


def test_devices_of_one_process_are_busy_each_by_itself(run: Run) -> None:
    job = Job(ranks=1)
    for e in kernels(job, 0)[1::2]:  # the collective of one rank stands for work of the second device
        e["pid"] = e["args"]["device"] = 1
        e["name"] = GEMM
    report = run(job)
    whole = 6 * job.step_us
    assert shares(report, 0)[0] == pytest.approx(100 * 6 * (2 * 400 + 2 * TRANSFER) / 2 / whole, abs=1)
    assert "rank 0 drives 2 devices (0, 1)" in notes(report)


def test_streams_of_two_devices_are_not_one(tmp_path: Path) -> None:
    job = Job(ranks=1)
    for e in kernels(job, 0)[1::2]:
        e["pid"] = e["args"]["device"] = 1
    (trace,) = load_traces([job.write(tmp_path)], cache=False).traces
    events = make_view(trace, 0).trace.events
    pairs = set(zip(events.pid[events.stream >= 0].tolist(), events.stream[events.stream >= 0].tolist(), strict=True))
    assert pairs == {(0, 7), (1, 8)}
    assert set(trace.events.stream.tolist()) == {-1, 7}


def test_an_unreadable_file_loses_no_verdict(run: Run, tmp_path: Path) -> None:
    job = Job(ranks=5, work={3: 560.0})
    job.write(tmp_path / "traces")
    del job.events[1]
    (tmp_path / "traces" / "rank1.json").write_text('{"traceEvents": [{"ph": "X", "cat": "kern')
    report = run(job)
    assert report.verdict.ranks == [3]
    (row,) = [r for r in report.ranks if r.rank == 1]
    (source,) = [s for s in report.sources if s.status == "unusable"]
    # the reason stands where the rank is said to be missing, and the path of the file in it
    assert (row.status, row.reason) == ("corrupt", source.reason)
    assert "rank1.json" in (row.reason or "")


def test_a_file_that_is_a_copy_of_another_is_reported(run: Run, tmp_path: Path) -> None:
    job = Job(ranks=5, work={3: 560.0})
    traces = job.write(tmp_path / "traces")
    for path in traces.glob("*rank1*"):
        twin = next(traces.glob(path.name.replace("rank1", "rank2")))
        path.write_bytes(twin.read_bytes())
    report = analyze(load_traces([traces], cache=False), hta=False)
    (row,) = [r for r in report.ranks if r.rank == 1]
    assert (row.status, row.compute_pct) == ("corrupt", None)
    assert "the same recording as" in (row.reason or "")


def test_a_rank_of_which_no_file_was_given(run: Run) -> None:
    job = Job(ranks=5)
    del job.events[4]
    assert [(r.rank, r.status, r.reason) for r in run(job).ranks if r.status != "ok"] == [
        (4, "missing", "no trace of this rank was given")
    ]


def test_a_stray_copy_on_another_device_makes_no_second_device(run: Run) -> None:
    job = Job(ranks=1)
    before = run(job)
    launch = event("cuda_runtime", "cudaMemcpyAsync", 4200, 4200, 120.0, 1.0, {"correlation": 7})
    copied = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1, 3, 130.0, 2.0, {"stream": 3, "correlation": 7})
    job.events[0] += [launch, copied]
    after = run(job)
    assert shares(after, 0) == pytest.approx(shares(before, 0), abs=0.1)
    assert "devices" not in notes(after)


# ---------------------------------------------------------------- stages that fail


@pytest.mark.parametrize(
    "stage",
    [
        *("analyse.find_losses", "analyse.whole_steps", "analyse.match", "analyse.measure_waits", "analyse.lend_steps"),
        *(
            "analyse.common_window",
            "analyse.plan_segments",
            "analyse.window_usage",
            "replay.profile",
            "replay.build_graph",
        ),
    ],
)
def test_a_stage_that_fails_takes_its_own_part(run: Run, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(f"rankscope.analysis.windows.{stage}", broken)
    report = run(Job(work={1: 560.0}))
    assert {e.message for e in report.errors} == {"RuntimeError: on purpose"}
    assert [r.rank for r in report.ranks] == [0, 1, 2]
    if stage != "analyse.window_usage":
        assert shares(report, 1)[0] == pytest.approx(100 * 1120 / Job(work={1: 560.0}).step_us, abs=2)
        assert report.kernels
        assert report.steps
    if stage in ("analyse.find_losses", "analyse.whole_steps", "analyse.lend_steps", "analyse.common_window"):
        assert report.verdict.ranks == [1]
    else:
        assert report.verdict.ranks == []


def test_one_rank_that_cannot_be_prepared_is_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = analyse.make_view

    def fails(trace: Any, rank: int) -> Any:
        if rank == 0:
            raise RuntimeError("on purpose")
        return prepared(trace, rank)

    monkeypatch.setattr(analyse, "make_view", fails)
    report = run(Job(ranks=4, work={1: 560.0}))
    assert [(r.rank, r.compute_pct is None) for r in report.ranks] == [(0, True), (1, False), (2, False), (3, False)]
    assert [e.where for e in report.errors] == ["attempt 0, window 0, rank 0"]
    assert report.verdict.ranks == [1]
