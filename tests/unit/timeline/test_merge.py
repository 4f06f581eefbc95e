"""One timeline of all ranks: times, tracks, arrows, limits."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.errors import AnalysisError, ConfigError, RunDirError
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.timeline import merge as merge_module
from rankscope.timeline.merge import merge
from rankscope.timeline.prepare import prepare_timeline
from rankscope.timeline.selection import Selection
from rankscope.trace.columns import Category
from rankscope.trace.files.load import LoadResult, load_traces

pytestmark = pytest.mark.data

NAMES = (
    "ddp_dataloader_stall", pytest.param("ddp_gpu_bound", marks=pytest.mark.long), "fsdp2_slow_gpu", "gloo_ddp_input",
    "gloo_fsdp2_pause",
)  # fmt: skip


@pytest.fixture
def two_ranks(write_rank: Any) -> LoadResult:
    """Rank 1 arrives 30 us later in the first step, 10 us earlier in the second; its clock is 5000.125 us ahead."""
    first = write_rank(0, [(100, 160), (300, 340.5), (500, 560)])
    second = write_rank(1, [(130, 160), (290, 340.5), (530, 560)], clock=5000.125)
    return load_traces([first, second], workers=1, cache=False)


def test_two_ranks_by_hand(two_ranks: LoadResult, tmp_path: Path, strict: Any) -> None:
    merged = merge(two_ranks, tmp_path / "t.json.gz")
    timeline = strict(merged.path)
    # zero is the first mark: 60 us before the first arrival
    waits = [(s.of_rank, s.start, s.end, s.name) for s in timeline.of("wait")]
    assert sorted(waits) == [
        (0, 60_000, 90_000, "wait for rank 1"),
        (0, 460_000, 490_000, "wait for rank 1"),
        (1, 250_000, 260_000, "wait for rank 0"),
    ]
    assert [(s.start, s.end) for s in timeline.of("transfer", 0)] == [
        (90_000, 120_000), (260_000, 300_500), (490_000, 520_000)
    ]  # fmt: skip
    assert [(s.start, s.end) for s in timeline.of("transfer", 1)] == [
        (90_000, 120_000), (260_000, 300_500), (490_000, 520_000)
    ]  # fmt: skip
    kernels = [s for s in timeline.of("kernel", 1) if s.name == "sm90_gemm"]
    assert [(s.start, s.length, s.args["step"]) for s in kernels] == [
        (50_000, 1_001, 5), (210_000, 1_001, 6), (450_000, 1_001, 7)
    ]  # fmt: skip
    assert timeline.labels[1].startswith("clock -5000.1 us")
    assert timeline.about["base_ns"] == 1_700_000_000_000_000_000 + 40_000
    assert (merged.slices, merged.arrows) == (len(timeline.slices), len(timeline.arrows))
    assert (merged.left_out, merged.notes) == ([], [])


def test_arrows_link_the_ranks_of_a_call_in_order_of_arrival(
    two_ranks: LoadResult, tmp_path: Path, strict: Any
) -> None:
    timeline = strict(merge(two_ranks, tmp_path / "t.json.gz").path)
    calls = [[s.of_rank for s in a] for a in timeline.arrows if "nccl" in a[0].name]
    assert calls == [[0, 1], [1, 0], [0, 1]]
    launches = [a for a in timeline.arrows if "nccl" not in a[0].name]
    assert len(launches) == 2 * 3 * 2
    assert {(a[0].name, a[1].category, a[0].pid == a[1].pid) for a in launches} == {
        ("cudaLaunchKernel", "kernel", True)
    }
    said = {(s.args["call"], s.args["collective"], s.args["ranks"]) for s in timeline.slices if "call" in s.args}
    assert said == {(f"0.0.{call}", "all_reduce", 2) for call in range(3)}


def test_tracks_of_a_rank(two_ranks: LoadResult, tmp_path: Path, strict: Any) -> None:
    timeline = strict(merge(two_ranks, tmp_path / "t.json.gz").path)
    assert {s.track for s in timeline.slices if s.of_rank == 1} == {
        "steps", "critical path", "wait", "transfer", "GPU 1 stream 7", "GPU 1 stream 20, communication",
        "main thread 100",
    }  # fmt: skip
    assert [s.name for s in timeline.of("steps", 0)] == ["step 5", "step 6", "step 7"]
    assert {s.rank for s in timeline.slices} == {"rank 0", "rank 1"}


@pytest.mark.data
@pytest.mark.parametrize("name", ["ddp_input", "fsdp2_none"])
def test_a_runs_verdict_is_the_reports(name: str) -> None:
    run = Path(__file__).parents[2] / "data" / "runs" / name
    manifest = from_json(RunManifest, (run / "run.json").read_bytes())
    load = load_traces([run], workers=1, cache=False)
    assert prepare_timeline(load, manifest).verdict == analyze(load, manifest, hta=False).verdict


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_the_tracks_agree_with_the_report(name: str, recorded: Any, whole_timeline: Any) -> None:
    report = analyze(recorded(name), hta=False)
    timeline = whole_timeline(name)
    caused: dict[int, float] = {}
    for rank in report.ranks:
        waits = timeline.of("wait", rank.rank)
        assert sum(s.length for s in waits) / 1e6 / rank.steps == pytest.approx(rank.wait_ms_per_step, abs=1e-4)
        for piece in waits:
            caused[piece.args["last rank"]] = caused.get(piece.args["last rank"], 0.0) + piece.length / 1e6
    for rank in report.ranks:
        assert caused.get(rank.rank, 0.0) / rank.steps == pytest.approx(rank.caused_wait_ms_per_step, abs=1e-4)
    steps = min(r.steps for r in report.ranks)
    moved = sum(s.length for s in timeline.of("transfer")) / 1e6 / steps / len(report.ranks)
    assert moved == pytest.approx(sum(g.transfer_ms_per_step for g in report.groups), abs=1e-4)
    marks = timeline.of("steps")
    assert len(marks) == sum(r.steps for r in report.ranks)


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_every_event_is_there_and_no_other(name: str, recorded: Any, whole_timeline: Any) -> None:
    load, timeline = recorded(name), whole_timeline(name)
    own = [s for s in timeline.slices if s.category not in {"steps", "critical path", "wait", "transfer", "verdict"}]
    assert len(own) == sum(len(t.events) for t in load.traces)
    for trace in load.traces:
        # calls of a CPU backend end where the analysis says, which is when the waiter went on
        mine = sum(s.length for s in own if s.of_rank == trace.rank and not s.name.startswith("gloo:"))
        said = np.array([not trace.strings[n].startswith("gloo:") for n in trace.events.name])
        # nothing but a drift may change a length, and by less than a millionth of the window
        assert mine == pytest.approx(int(trace.events.duration[said].sum()), rel=1e-5)


@pytest.mark.data
def test_the_straggler_is_marked(whole_timeline: Any) -> None:
    timeline = whole_timeline("ddp_dataloader_stall")
    marks = timeline.of("verdict")
    assert {(s.of_rank, s.name, s.track) for s in marks} == {(1, "waiting for input", "verdict: waiting for input")}
    for mark in marks:  # 60 ms were planted
        assert mark.length / 1e6 == pytest.approx(60, abs=2)
        assert float(mark.args["own ms"]) == pytest.approx(mark.length / 1e6, abs=0.01)


@pytest.mark.data
@pytest.mark.parametrize("name", ["fsdp2_slow_gpu", pytest.param("ddp_slow_gpu", marks=pytest.mark.long)])
def test_a_fault_in_device_work_is_marked_where_it_ran(name: str, whole_timeline: Any) -> None:
    timeline = whole_timeline(name)
    marks = timeline.of("verdict")
    assert {s.of_rank for s in marks} == {1}
    kernels = timeline.of("kernel", 1)
    for mark in marks:
        inside = [k for k in kernels if mark.start <= k.start and k.end <= mark.end]
        assert inside[0].start == mark.start


@pytest.mark.data
@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.long) for n in ("ddp_healthy", "fsdp2_gpu_bound")), "gloo_ddp_none"]
)
def test_no_rank_is_marked_without_a_verdict(name: str, whole_timeline: Any) -> None:
    assert whole_timeline(name).of("verdict") == []


@pytest.mark.data
@pytest.mark.parametrize(
    "max_mb",
    [0.2, 1.0, 10.0, *(pytest.param(mb, marks=pytest.mark.long) for mb in (0.5, 3.0, 6.0, 8.0))],
)
def test_the_bound_is_kept_and_what_is_left_out_is_reported(
    max_mb: float, recorded: Any, tmp_path: Path, strict: Any
) -> None:
    merged = merge(recorded("ddp_dataloader_stall"), tmp_path / "t.json.gz", Selection(max_mb=max_mb))
    timeline = strict(merged.path)
    assert len(timeline.text) == merged.json_bytes <= max_mb * 1e6
    assert merged.file_bytes == merged.path.stat().st_size
    assert timeline.about["left_out"] == merged.left_out
    # what the report speaks of stays
    assert len(timeline.of("steps")) == 8
    assert len([s for s in timeline.slices if s.name.startswith("nccl")]) >= 64
    whole = recorded("ddp_dataloader_stall")
    missing = sum(len(t.events) for t in whole.traces) - (
        len(timeline.slices)
        - sum(len(timeline.of(c)) for c in ("steps", "critical path", "wait", "transfer", "verdict"))
    )
    told = [line for line in merged.left_out if "arrows" not in line]
    assert sum(int(line.split()[0].replace(",", "")) for line in told) == missing
    if max_mb <= 6:
        assert missing


@pytest.mark.data
def test_of_a_class_that_does_not_fit_the_longest_stay(recorded: Any, tmp_path: Path, strict: Any) -> None:
    merged = merge(recorded("ddp_dataloader_stall"), tmp_path / "t.json.gz", Selection(max_mb=4))
    kept = sorted(s.length for s in strict(merged.path).of("cpu_op"))
    load = recorded("ddp_dataloader_stall")
    every = np.sort(np.concatenate([t.events.duration[t.events.category == Category.CPU_OP] for t in load.traces]))
    assert 0 < len(kept) < len(every)
    longest = every[len(every) - len(kept) :].tolist()
    assert all(abs(a - b) <= 1 for a, b in zip(kept, longest, strict=True))  # rounding of a drift
    assert any("operators, those shorter than" in line for line in merged.left_out)


def test_too_small_a_bound_is_refused(two_ranks: LoadResult, tmp_path: Path) -> None:
    many = dataclasses.replace(two_ranks)
    with pytest.raises(ConfigError, match="at least"):
        Selection(max_mb=0.01)
    with pytest.raises(ConfigError, match="at least"):
        Selection(max_mb=float("nan"))
    assert merge(many, tmp_path / "t.json.gz", Selection(max_mb=0.1)).left_out == []


def test_chosen_steps_ranks_and_categories(two_ranks: LoadResult, tmp_path: Path, strict: Any) -> None:
    merged = merge(two_ranks, tmp_path / "s.json.gz", Selection(steps=(6, 6)))
    timeline = strict(merged.path)
    assert [(s.of_rank, s.length) for s in timeline.of("wait")] == [(1, 10_000)]
    assert {s.args["step"] for s in timeline.slices if "step" in s.args} == {6}
    assert [len(a) for a in timeline.arrows if "nccl" in a[0].name] == [2]

    timeline = strict(merge(two_ranks, tmp_path / "r.json.gz", Selection(ranks=frozenset({1, 7}))).path)
    assert {s.of_rank for s in timeline.slices} == {1}
    assert [s.length for s in timeline.of("wait")] == [10_000]  # clocks and waits know the other rank all the same
    assert not [a for a in timeline.arrows if "nccl" in a[0].name]

    chosen = Selection(categories=frozenset({Category.KERNEL}))
    timeline = strict(merge(two_ranks, tmp_path / "c.json.gz", chosen).path)
    assert {s.category for s in timeline.slices} == {"kernel", "steps", "critical path", "wait", "transfer"}
    assert len(timeline.arrows) == 3


@pytest.mark.parametrize(
    ("selection", "said"),
    [(Selection(steps=(90, 99)), "there are 5 to 7"), (Selection(ranks=frozenset({3})), "there are 0, 1")],
)
def test_nothing_left_is_refused(selection: Selection, said: str, two_ranks: LoadResult, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        merge(two_ranks, tmp_path / "t.json.gz", selection)
    assert list(tmp_path.glob("*.gz")) == []


ODD = [
    "",
    '"}],',
    "a\x00b\x1b[31m\x7f",
    "\ud83d",
    "💥 名前",
    "<script>alert(1)</script>",
    "\\",
    "x" * 10_000,
    "💥" * 3_000,
]


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
def test_odd_names(name: str, write_rank: Any, tmp_path: Path, strict: Any) -> None:
    calls = [(100, 160), (300, 340)]
    files = [write_rank(rank, calls, gemm=name, operator=name) for rank in range(2)]
    load = load_traces(files, workers=1, cache=False)
    for trace in load.traces:
        trace.groups = [dataclasses.replace(g, description=name) for g in trace.groups]
        trace.meta.host = trace.meta.device = name
    merged = merge(load, tmp_path / "t.json.gz", Selection(max_mb=0.1))
    timeline = strict(merged.path)
    assert merged.json_bytes <= 1e5
    shown = {s.name for s in timeline.of("kernel") if not s.name.startswith("nccl")}
    assert len(shown) == 1
    assert len(shown.pop()) <= 500
    assert not any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 for s in timeline.slices for c in s.name)


def test_windows_share_the_processes_and_not_the_clock(write_rank: Any, tmp_path: Path, strict: Any) -> None:
    def run(window: int, rank: int, **more: Any) -> Path:
        return write_rank(rank, folder=f"attempt_0/window_{window:03d}", **more)

    for window, clock, at in ((0, 300.0, 0), (1, 900.5, 1_000_000)):
        for rank in range(2):
            calls = [(at + 100 + 20 * rank, at + 160), (at + 300 + 20 * rank, at + 360)]
            path = run(window, rank, calls=calls, clock=clock * rank, first_step=5 + 10 * window)
            path.rename(path.with_name(f"rank_{rank:05d}.trace.json"))
    load = load_traces([tmp_path / "attempt_0"], workers=1, cache=False)
    assert [(t.window, t.rank) for t in load.traces] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    timeline = strict(merge(load, tmp_path / "t.json.gz").path)
    assert {s.of_rank for s in timeline.slices} == {0, 1}
    assert [(s.of_rank, s.start, s.length) for s in timeline.of("wait")] == [
        (0, at, 20_000) for at in (60_000, 260_000, 1_000_060_000, 1_000_260_000)
    ]
    assert {s.args["call"] for s in timeline.of("wait")} == {"0.0.0", "0.0.1", "0.1.0", "0.1.1"}


def test_slices_that_overlap_get_lanes(write_rank: Any, tmp_path: Path, strict: Any) -> None:
    files = [write_rank(rank, [(100, 160), (300, 360)]) for rank in range(2)]
    load = load_traces(files, workers=1, cache=False)
    for trace in load.traces:  # the first GEMM now ends within the second
        gemms = np.flatnonzero([trace.strings[n] == "sm90_gemm" for n in trace.events.name])
        trace.events.duration[gemms[0]] = trace.events.start[gemms[1]] - trace.events.start[gemms[0]] + 500
    tracks = {s.track for s in strict(merge(load, tmp_path / "t.json.gz").path).of("kernel", 0)}
    assert tracks == {"GPU 0 stream 7", "GPU 0 stream 7 (2)", "GPU 0 stream 20, communication"}


def test_names_sort_as_ranks_do(write_rank: Any, tmp_path: Path, strict: Any) -> None:
    files = [write_rank(rank, [(100, 160)]) for rank in (2, 10)]
    timeline = strict(merge(load_traces(files, workers=1, cache=False), tmp_path / "t.json.gz").path)
    assert {(s.rank, s.of_rank) for s in timeline.slices} == {("rank 02", 2), ("rank 10", 10)}


def test_one_rank_alone(write_rank: Any, tmp_path: Path, strict: Any) -> None:
    load = load_traces([write_rank(0, [(100, 160), (300, 360)])], workers=1, cache=False)
    timeline = strict(merge(load, tmp_path / "t.json.gz").path)
    assert timeline.of("wait") == []
    assert len(timeline.of("kernel")) == 4


def test_a_window_that_cannot_be_compared_costs_nobody_else(
    two_ranks: LoadResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("rankscope.analysis.diagnosis.collect", broken)
    merged = merge(two_ranks, tmp_path / "t.json.gz")
    assert merged.notes == ["diagnosis is left out: ZeroDivisionError: oops"]
    monkeypatch.setattr("rankscope.analysis.windows.all_windows.analyse_window", broken)
    with pytest.raises(AnalysisError, match="oops"):
        merge(two_ranks, tmp_path / "u.json.gz")


def test_no_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="no usable trace"):
        merge(LoadResult([], []), tmp_path / "t.json.gz")


def test_an_older_file_is_not_overwritten_silently(two_ranks: LoadResult, tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_text("precious")
    with pytest.raises(RunDirError, match="not overwritten"):
        merge(two_ranks, path)
    assert path.read_text() == "precious"
    merge(two_ranks, path, replace=True)
    assert json.loads(gzip.decompress(path.read_bytes()))["displayTimeUnit"] == "ms"
    assert sorted(p.name for p in tmp_path.glob("*json*")) == ["t.json.gz"]


def test_a_write_that_fails_leaves_nothing(
    two_ranks: LoadResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Any:
        yield "{"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merge_module, "lines", full)
    with pytest.raises(RunDirError, match="No space left"):
        merge(two_ranks, tmp_path / "sub" / "t.json.gz")
    assert list((tmp_path / "sub").iterdir()) == []


def test_the_same_traces_give_the_same_bytes(two_ranks: LoadResult, tmp_path: Path, strict: Any) -> None:
    first, second = (merge(two_ranks, tmp_path / f"{n}.json.gz").path.read_bytes() for n in "ab")
    assert first == second
    plain = merge(two_ranks, tmp_path / "plain.json").path
    assert plain.read_bytes() == gzip.decompress(first)


def test_progress_in_bytes(recorded: Any, tmp_path: Path) -> None:
    load = recorded("ddp_dataloader_stall")
    told: list[tuple[int, int]] = []
    merged = merge(load, tmp_path / "t.json.gz", written=lambda *now: told.append(now))
    done = [now for now, _ in told]
    assert len(done) > 3
    assert done == sorted(done)
    assert all(now <= most for now, most in told)
    assert done[-1] == merged.json_bytes == told[-1][1]
    # what is promised holds for the events; the arrows come on top, and are a small part
    assert merged.json_bytes <= 1.5 * merged.most_bytes


def test_launch_arrows_are_all_there_or_none(recorded: Any, tmp_path: Path, strict: Any) -> None:
    load = recorded("ddp_dataloader_stall")
    whole = merge(load, tmp_path / "whole.json.gz")
    assert whole.left_out == []
    launches = sum(int((t.events.launch >= 0).sum()) for t in load.traces)
    calls = sum(len(t.collectives) for t in load.traces) // 2
    assert launches < whole.arrows <= launches + calls
    bound = whole.most_bytes / 1e6 + 0.1  # room for all events, and for a tenth of the arrows
    small = merge(load, tmp_path / "small.json.gz", Selection(max_mb=bound))
    assert small.json_bytes <= bound * 1e6
    assert small.left_out == [f"all {launches:,} arrows from launches to kernels"]
    assert small.arrows <= calls
    for ends in strict(small.path).arrows:
        assert {end.category for end in ends} == {"kernel"}, "collectives only"
