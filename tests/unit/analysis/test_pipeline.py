from __future__ import annotations

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.errors import AnalysisError
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest, WindowRanks
from rankscope.records.rank import ClockSample, HealthSample, RankRecord, StepTimes
from rankscope.timeline.prepare import prepare_timeline
from rankscope.trace.files.load import LoadResult, load_traces

from .conftest import DATA

RECORDED_MS = [43.95, 45.2]
"""Median step of the ranks of ddp_healthy, from the last kernel of a step to that of the next; by hand."""


def _record(rank: int, **more) -> RankRecord:
    return RankRecord(rank=rank, local_rank=rank, world_size=3, host="node-a", pid=1, attempt=0, window=0, **more)


def _manifest(records: list[RankRecord]) -> RunManifest:
    window = WindowRanks(attempt=0, window=0, world_size=3, records=records, mismatches=["one late"])
    return RunManifest(
        run_id="r1",
        argv=["train.py"],
        config={},
        versions={"torch": "2.13.0"},
        hosts=["node-a"],
        world_size=3,
        attempts=1,
        exit_code=0,
        windows=[window],
        lives=[],
        notes=["a note"],
    )


@pytest.mark.data
def test_the_manifest_knows_who_is_missing_and_what_recording_cost(recorded) -> None:
    times = StepTimes(before_ms=[RECORDED_MS[0] / 1.5] * 3, inside_ms=[150, 150], open_ms=20, close_ms=700)
    manifest = _manifest(
        [
            _record(0, steps=times, device="GPU X"),
            _record(1, status="partial", reason="the job ended in the window"),
            _record(2, status="missing", reason="killed by SIGKILL"),
        ]
    )
    report = analyze(recorded("ddp_healthy"), manifest, hta=False)
    assert [(r.rank, r.status, r.reason) for r in report.ranks] == [
        (0, "ok", None),
        (1, "partial", "the job ended in the window"),
        (2, "missing", "killed by SIGKILL"),
    ]
    assert report.ranks[2].compute_pct is None
    assert report.ranks[0].device == "GPU X"
    assert (report.run.source, report.run.run_id, report.run.exit_code) == ("run", "r1", 0)
    assert report.run.recording_overhead_pct == pytest.approx(50, abs=0.1)
    assert report.run.longest_stall_ms == 700
    assert report.run.notes[:2] == ["a note", "one late"]


@pytest.mark.data
@pytest.mark.parametrize(("before", "share"), [(0.8, 0.2), (1.01, 0.0), (1.2, 0.0)])
def test_what_recording_adds_is_no_gain_of_a_faster_host(recorded, before, share) -> None:
    # steps that take four fifths unrecorded: a fifth of each is recording's; a slow beginning makes none
    unknown = analyze(recorded("ddp_healthy"), hta=False)
    records = [_record(r, steps=StepTimes(before_ms=[before * RECORDED_MS[r]] * 9)) for r in range(2)]
    known = analyze(recorded("ddp_healthy"), _manifest(records), hta=False)
    less = unknown.what_if["no_host_overhead"] - known.what_if["no_host_overhead"]
    assert less == pytest.approx(share * unknown.verdict.step_ms, rel=0.1)


@pytest.mark.data
def test_a_job_bound_by_its_hosts_is_so_unrecorded_too() -> None:
    # steps before the window took 70 ms, and kernels 24 of those: see the README of the recorded runs
    run = DATA / "runs" / "fsdp2_none"
    manifest = from_json(RunManifest, (run / "run.json").read_bytes())
    report = analyze(load_traces([run], workers=1, cache=False), manifest, hta=False)
    assert (report.verdict.kind, report.run.recording_overhead_pct > 30) == ("host_bound", True)


@pytest.mark.data
def test_what_recording_leaves_behind(recorded) -> None:
    # ten steps of 100 ms before, then two that settle and ten of 110 ms: 10 % more
    before = StepTimes(before_ms=[100.0] * 10, inside_ms=[150.0])
    manifest = _manifest([_record(0, steps=before, trace="rank_00000.trace.json.gz")])
    manifest.lives = [_record(0, steps=StepTimes(after_ms=[900.0, 300.0] + [110.0] * 10))]
    assert analyze(recorded("ddp_healthy"), manifest, hta=False).run.residue_pct == pytest.approx(10)
    # seven steps are too few to tell
    manifest.lives[0].steps.after_ms = [900.0, 300.0] + [110.0] * 7
    assert analyze(recorded("ddp_healthy"), manifest, hta=False).run.residue_pct is None


@pytest.mark.data
@pytest.mark.parametrize(
    ("before_ms", "inside_ms", "overhead_pct"),
    [
        ([0.1, 0.1, 0.1, 160.0] * 10, [0.1, 170.0, 0.1, 0.1], pytest.approx(100 * (43.95 / 40.075 - 1), abs=0.1)),
        ([0.1] * 99 + [4000.0], [0.1] * 4, None),  # half the time in one step, and nobody knows how often that comes
        ([40.0] * 99 + [9000.0], [44.0] * 4, pytest.approx(100 * (43.95 / 40 - 1), abs=0.1)),  # this host keeps pace
    ],
)
def test_what_recording_adds_where_the_host_runs_ahead(recorded, before_ms, inside_ms, overhead_pct) -> None:
    pace = StepTimes(before_ms=before_ms, inside_ms=inside_ms)
    run = analyze(recorded("ddp_healthy"), _manifest([_record(0, steps=pace)]), hta=False).run
    assert run.recording_overhead_pct == overhead_pct


@pytest.mark.data
def test_a_step_is_that_of_the_device(recorded) -> None:
    # GIVEN rank 0's host runs ahead: its steps took 32 to 162 ms, those of its device 82.5, 86.9, 96.6 and 89.7
    ranks = analyze(recorded("kineto_input_stall"), hta=False).ranks
    assert [r.step_ms["median"] for r in ranks] == [pytest.approx(88.3, abs=0.1), pytest.approx(89.1, abs=0.1)]


@pytest.mark.data
def test_the_costs_of_the_steps_are_that_of_the_verdict(recorded) -> None:
    report = analyze(recorded("ddp_slow_gpu"), hta=False)
    costs = {rank: [row.cost_ms for row in report.steps if row.rank == rank] for rank in (0, 1)}
    assert costs[0] == [0.0] * 4
    assert sum(costs[1]) / 4 == pytest.approx(report.verdict.cost_ms_per_step)
    assert report.verdict.why[2].endswith(f": {', '.join(f'{ms:.0f}' for ms in costs[1])} ms.")


@pytest.mark.data
def test_the_recorder_and_its_reason_are_reported(recorded) -> None:
    plain = {"trace": "t.json", "capture": "kineto"}
    late = {"trace": "t.json", "capture": "inline", "capture_reason": "libkineto had not asked"}
    same, different = [_record(r, **plain) for r in range(2)], [_record(0, **plain), _record(1, **late)]
    (one,) = analyze(recorded("ddp_healthy"), _manifest(same), hta=False).run.windows
    (two,) = analyze(recorded("ddp_healthy"), _manifest(different), hta=False).run.windows
    assert one == "steps 4 to 7, 2 ranks, by libkineto"
    assert two.endswith("2 ranks, by libkineto on rank 0, by torch.profiler (libkineto had not asked) on rank 1")


def test_a_run_without_any_trace_still_has_a_report() -> None:
    report = analyze(LoadResult(traces=[], sources=[]), _manifest([_record(r, status="missing") for r in range(3)]))
    assert report.verdict.kind == "insufficient_data"
    assert [r.status for r in report.ranks] == ["missing"] * 3
    assert report.errors == []


def test_nothing_at_all_is_an_error_with_a_remedy() -> None:
    with pytest.raises(AnalysisError, match=r"no usable trace.*rank_0"):
        analyze(LoadResult(traces=[], sources=[]))


@pytest.mark.data
def test_a_stage_that_fails_is_named_and_the_others_run(recorded, monkeypatch) -> None:
    def broken(*_args, **_kwargs):
        raise RuntimeError("no luck")

    monkeypatch.setattr("rankscope.analysis.tables.table.kernel_rows", broken)
    report = analyze(recorded("ddp_dataloader_stall"), hta=False)
    assert [(e.where, e.message) for e in report.errors] == [("kernels", "RuntimeError: no luck")]
    assert report.verdict.kind == "straggler"


def test_progress_is_reported(make_trace) -> None:
    said: list[str] = []
    traces = [make_trace(r, [("gemm", 100, 50)], ranks=(0, 1)) for r in (0, 1)]
    report = analyze(LoadResult(traces=traces, sources=[]), hta=False, progress=said.append)
    assert said == ["comparing 2 ranks"]
    assert report.errors == []
    assert report.verdict.kind == "insufficient_data"


def test_without_collectives_ranks_of_one_host_share_its_clock(make_trace) -> None:
    """Rank 1 sampled after CLOCK_REALTIME had been set forward by 2 ms; rank 2 is on another host."""
    traces = [make_trace(r, [("gemm", 100, 50)], ranks=(0, 1, 2)) for r in range(3)]
    records = [_record(r, clock=[ClockSample(realtime_ns=1_000_000 + r * 2_000_000, monotonic_ns=0)]) for r in range(3)]
    records[1].clock.append(ClockSample(realtime_ns=3_000_500, monotonic_ns=0))
    records[2].host = "node-b"
    report = analyze(LoadResult(traces=traces, sources=[]), _manifest(records), hta=False)
    assert report.errors == []
    assert report.clock.method == "host_clock"
    assert report.clock.offsets_us == pytest.approx({"0": 0.0, "1": -2000.5, "2": 0.0})
    assert report.clock.error_us == pytest.approx(0.5)
    # the merged timeline shows the ranks on the same clocks as the report
    prepared = prepare_timeline(LoadResult(traces=traces, sources=[]), _manifest(records))
    assert prepared.windows[0].clocks.method == "host_clock"
    assert prepared.windows[0].clocks.offset.tolist() == pytest.approx([0.0, -2_000_500.0, 0.0])


@pytest.mark.data
def test_the_timeline_has_the_verdict_of_the_report(recorded) -> None:
    """A foreign process on the device of the slow rank is known from its health alone: no rank is to blame for it."""
    records = [
        _record(r, device_uuid=f"GPU-{r}", health=[HealthSample(time_ns=0, device=f"GPU-{r}", processes=1 + r)])
        for r in (0, 1)
    ]
    alone = analyze(recorded("cnn_neighbour"), hta=False)
    report = analyze(recorded("cnn_neighbour"), _manifest(records), hta=False)
    assert (alone.verdict.kind, alone.verdict.ranks) == ("straggler", [1])
    assert (report.verdict.kind, report.verdict.ranks) == ("contended", [])
    assert prepare_timeline(recorded("cnn_neighbour"), _manifest(records)).verdict == report.verdict


@pytest.mark.data
def test_a_host_far_ahead_of_its_device() -> None:
    # a device busy for 72.3 ms a step, and 8 ms of sleep that are not hidden in every fifth: 73.9 ms, recorded or not
    run = DATA / "runs" / "graph_ahead"
    manifest = from_json(RunManifest, (run / "run.json").read_bytes())
    report = analyze(load_traces([run], workers=1, cache=False), manifest, hta=False)
    assert report.errors == []
    assert (report.verdict.kind, report.verdict.step_ms) == ("comm_bound", pytest.approx(73.9, rel=0.01))
    assert [rank.step_ms["median"] for rank in report.ranks] == pytest.approx([72.3, 72.3], rel=0.01)
    assert (report.pulse.median_ms, report.pulse.typical) == (pytest.approx(73.9, rel=0.01), True)
    assert report.run.recording_overhead_pct == pytest.approx(0, abs=3)
    assert all(idle.waiting_ms + idle.transfer_ms < 73.9 for idle in report.idle)
