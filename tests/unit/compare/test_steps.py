"""The step of two runs: slower, faster, the same, or undecided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rankscope.compare.compare import compare
from rankscope.compare.show import DIFF_WRITERS
from rankscope.compare.show.wording import scaling_efficiency, steps_line
from rankscope.compare.sides.noise import block_length, of_difference, of_runs, within_run
from rankscope.compare.sides.side import summary_of
from rankscope.records.report import Action, Finding
from rankscope.records.rows import HealthRow, StepRow

NOISE = np.random.default_rng(3).normal(0, 0.2, 400)


@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "slower"), (0.9, "faster"), (1.0, "same"), (1.02, "same")])
def test_unrecorded_steps_decide(make_side, factor: float, verdict: str) -> None:
    before = make_side(step_ms=list(20 + NOISE[:200]))
    after = make_side(step_ms=list(20 * factor + NOISE[200:]))
    diff = compare(before, after)
    assert (diff.verdict, diff.before.step_source, diff.before.steps) == (verdict, "unrecorded", 200)
    assert diff.step.change == pytest.approx(20 * (factor - 1), abs=0.1)


def test_repeated_runs_of_a_baseline_replace_the_assumed_noise(make_side) -> None:
    before, after = make_side(step_ms=list(20 + NOISE[:200])), make_side(step_ms=list(20.6 + NOISE[200:]))
    assert compare(before, after).verdict == "same"
    assert not any("would not be seen" in note for note in compare(before, after).notes)
    drifting = make_side(step_ms=list(np.linspace(18, 23, 200)))
    assert any("would not be seen: repeat the runs" in note for note in compare(before, drifting).notes)
    before.replicates = [summary_of(make_side(step_ms=list(20 + off + NOISE[:200]))) for off in (0.01, -0.01, 0.02, 0)]
    assert compare(before, after).verdict == "slower"
    before.replicates = [summary_of(make_side(step_ms=list(20 + off + NOISE[:200]))) for off in (0.5, -0.5, 0.9, 0)]
    assert compare(before, after).verdict == "same"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda side: setattr(side.report.run, "world_size", 4), "2 ranks against 4"),
        (lambda side: setattr(side.report.run, "devices", ["Other"]), "other devices: Chip against Other"),
        (
            lambda side: [own.strings.__setitem__(slice(0, 3), list("xyz")) for own in side.ranks],
            "another model or batch",
        ),
        (lambda side: [setattr(own.calls, "size", [4] * 4) for own in side.ranks], "other parallelism"),
        (lambda side: side.report.health.append(HealthRow(rank=0, pressure_cpu_pct=60.0)), "waited for a CPU 60 %"),
        (
            lambda side: side.report.findings.append(
                Finding(
                    id="x",
                    kind="gpu_throttled",
                    ranks=[0],
                    cost_ms_per_step=None,
                    confidence="low",
                    title="hot",
                    evidence=[],
                    advice=[],
                )
            ),
            "a device was throttled",
        ),
    ],
)
def test_runs_that_cannot_be_compared_have_a_reason_and_counts(make_side, change, reason: str) -> None:
    after = make_side(step_ms=list(30 + NOISE[200:]))
    after.ranks[1].steps.launches = [99] * 4
    change(after)
    before = make_side(step_ms=list(20 + NOISE[:200]))
    diff = compare(before, after)
    assert diff.verdict == "not_comparable"
    assert any(reason in said for said in diff.reasons), diff.reasons
    assert "launches" in {row.name for row in diff.told}
    assert compare(before, after, force=True).verdict == "slower"


@pytest.mark.parametrize(("others", "verdict"), [(4.0, "slower"), (30.0, "not_comparable"), (None, "not_comparable")])
def test_only_the_pressure_of_others_disturbs(make_side, others: float | None, verdict: str) -> None:
    """A job that fills its CPUs waits for itself, and does so in every run."""
    before, after = make_side(step_ms=list(20 + NOISE[:200])), make_side(step_ms=list(30 + NOISE[200:]))
    busy = Finding(
        id="contended", kind="contended", ranks=[0], cost_ms_per_step=1.0, confidence="low", title="", evidence=[],
        advice=[],
    )  # fmt: skip
    for side in (before, after):
        side.report.health = [HealthRow(rank=0, cpus=2.0, pressure_cpu_pct=60.0, others_cpu_pct=others)]
        side.report.findings = [busy]
    diff = compare(before, after)
    assert diff.verdict == verdict
    assert ("other processes used 30 %" in diff.sentence) == (others == 30.0)
    after.report.findings = [replace(busy, id="contended-rank-0")]  # another process uses that rank's device
    assert compare(before, after).verdict == "not_comparable"


def test_steps_that_follow_the_pace_of_all_kernels_show_no_change_of_the_program(make_side) -> None:
    kernels = {f"op{n}": (10, 300.0) for n in range(6)}
    slow = {name: (count, 1.25 * us) for name, (count, us) in kernels.items()}
    before = make_side(kernels, step_ms=list(20 + NOISE[:200]))
    diff = compare(before, make_side(slow, step_ms=list(24.5 + NOISE[200:])))
    assert diff.verdict == "not_comparable"
    assert "all kernels alike take 25 % longer" in diff.sentence
    # 18 ms of kernels take 4.5 longer, which is no reason for 12 ms, nor for the other kernels' 6
    assert compare(before, make_side(slow, step_ms=list(32 + NOISE[200:]))).verdict == "slower"
    assert compare(before, make_side(kernels, step_ms=list(24.5 + NOISE[200:]))).verdict == "slower"


def test_of_a_report_alone_only_its_steps_are_compared(make_side) -> None:
    """The steps 20, 30, 31, 32 of one window: three count, with a mean of 31. Nothing is called gone."""
    kept = make_side()
    kept.ranks = []
    kept.report.steps = [
        StepRow(
            attempt=0, window=0, step=step, rank=rank, duration_ms=ms, compute_ms=0, comm_ms=0, exposed_comm_ms=0,
            idle_ms=0, lateness_ms=None, input_ms=0,
        )
        for rank in (0, 1)
        for step, ms in enumerate((20.0, 30.0, 31.0, 32.0))
    ]  # fmt: skip
    assert kept.step_ms.tolist() == [30.0, 31.0, 32.0]
    diff = compare(make_side(), kept)
    assert (diff.after.step_ms, diff.after.steps, diff.rows) == (31.0, 3, [])
    assert diff.step.noise > of_difference(np.array([20.0, 20.01, 20.0]), kept.step_ms)


def larger(side, size: int = 4):
    """The same job on more ranks: copies of these."""
    for own in side.ranks:
        own.calls.size = [size] * 4
    side.ranks = [replace(side.ranks[rank % 2], rank=rank) for rank in range(size)]
    side.report.run.world_size = size
    return side


def test_a_job_of_another_size_is_compared_by_what_each_rank_does(make_side) -> None:
    before = make_side(step_ms=list(20 + NOISE[:200]))
    after = larger(make_side(step_ms=list(25 + NOISE[200:]), transfer_us=300))
    assert compare(before, after).verdict == "not_comparable"
    diff = compare(before, after, scale=True)
    assert (diff.verdict, diff.reasons) == ("slower", [])
    efficiency = scaling_efficiency(diff)
    assert efficiency == pytest.approx(20 / 25, abs=0.01)
    assert f"scaling efficiency {100 * efficiency:.1f} % from 2 to 4 ranks" in steps_line(diff)
    assert [(row.name, row.status) for row in diff.rows if row.kind == "collective"] == [
        ("all_reduce 4 MB", "changed")  # one row, though the groups are of 2 and of 4 ranks
    ]
    assert "the difference is not taken apart: 2 ranks against 4" in diff.notes
    assert [row.name for row in diff.told if row.kind in {"kernel", "count"}] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        # half of each kernel's calls, as with half of the micro-batches
        (
            lambda side: [setattr(own.work, "count", [n // 2 for n in own.work.count]) for own in side.ranks],
            "rank 0 makes 31 calls of operators a step against 15",
        ),
        (lambda side: [own.strings.__setitem__(slice(0, 3), list("xyz")) for own in side.ranks], "another model"),
        (lambda side: [own.strings.__setitem__(3, "send") for own in side.ranks], "which stage of a pipeline"),
        (
            lambda side: [own.strings.__setitem__(3, "all_gather") for own in side.ranks],
            "all_reduce against all_gather",
        ),
    ],
)
def test_a_job_of_another_size_with_another_share_of_the_work(make_side, change, reason: str) -> None:
    after = make_side(step_ms=list(25 + NOISE[200:]))
    change(after)
    diff = compare(make_side(step_ms=list(20 + NOISE[:200])), larger(after), scale=True)
    assert diff.verdict == "not_comparable"
    assert any(reason in said for said in diff.reasons), diff.reasons
    assert scaling_efficiency(diff) is None


def test_what_changed_is_listed(make_side) -> None:
    after = make_side()
    after.report.run.versions = {"torch": "2.12", "nccl": "2.28"}
    assert compare(make_side(), after).changed == ["torch 2.11 -> 2.12"]


def test_promised_against_got(make_side) -> None:
    before, after = make_side(step_ms=list(30 + NOISE[:200])), make_side(step_ms=list(20 + NOISE[200:]))
    before.report.verdict = replace(
        before.report.verdict, kind="straggler", ranks=[1], cause="input_stall", cost_ms_per_step=9.5, cost_error_ms=0.5
    )
    (promise,) = compare(before, after).promises
    assert (promise.promised_ms, promise.kept) == (9.5, True)
    assert promise.got_ms == pytest.approx(10, abs=0.1)
    assert compare(before, before).promises == []
    before.report.verdict = replace(before.report.verdict, cost_ms_per_step=0.2)  # less than the noise
    diff = compare(before, make_side(step_ms=list(30 + NOISE[200:])))
    assert diff.promises == []
    assert "whether 0.2 ms without input_stall on rank 1 were gained is not decided" in diff.notes
    before.report.verdict = replace(before.report.verdict, cost_ms_per_step=9.5)
    after.report.run.devices = ["another"]  # what was gained then is not the program's
    diff = compare(before, after)
    assert (diff.verdict, diff.promises) == ("not_comparable", [])
    assert "whether 9.5 ms without input_stall on rank 1 were gained is not decided" in diff.notes


def test_advice_that_was_followed_against_got(make_side) -> None:
    """10 ms were gained: a bound of 12 is kept and one of 5 is not; of two pieces nobody knows which was followed."""

    def action(code: str, saves_ms: float) -> Action:
        return Action(code=code, text="", ranks=[0, 1], kind="bound", saves_ms=saves_ms)

    before, after = make_side(step_ms=list(30 + NOISE[:200])), make_side(step_ms=list(20 + NOISE[200:]))
    for bound, kept in ((12.0, True), (5.0, False)):
        before.report.actions = [action("hide_transfers", bound), action("compile", 3.0)]
        after.report.actions = [action("compile", 2.0)]
        (promise,) = compare(before, after).promises
        assert (promise.text, promise.promised_ms, promise.at_most) == ("by hide_transfers", bound, True)
        assert promise.kept == kept
        text = DIFF_WRITERS["terminal"]([compare(before, after)])
        assert f"Promised       at most {bound} ms by hide_transfers" in text
    after.report.actions = []
    assert compare(before, after).promises == []
    assert compare(after, before).promises == []


def test_noise_by_hand() -> None:
    # Student's t at 99 %, three degrees of freedom: 5.841; the standard deviation of 1, 2, 3, 4 is 1.291
    assert within_run([1.0, 2.0, 3.0, 4.0]) == pytest.approx(5.841 * 1.291 / 2, rel=1e-3)
    # quarters of 10, 12, 10, 12 have the variance 4/3, those of a constant run none: 2/3 together, with six degrees of
    # freedom (3.707); two runs
    swings = np.repeat([10.0, 12.0, 10.0, 12.0], 5)
    assert of_runs([swings], np.full(20, 20.0)) == pytest.approx(3.707 * (2 / 3) ** 0.5 * 2**0.5, rel=1e-3)
    # three runs that scatter more than their quarters: two degrees, 9.925; standard deviation 1; sqrt(1 + 1/3)
    constant = [np.full(20, ms) for ms in (9.0, 10.0, 11.0)]
    assert of_runs(constant, np.full(20, 10.0)) == pytest.approx(9.925 * (4 / 3) ** 0.5, rel=1e-3)
    # three that scatter less: the variance of all quarters, (4/3 + 0 + 0 + 0) / 4 with twelve degrees, 3.055
    steady = [swings, np.full(20, 11.0), np.full(20, 11.1)]
    assert of_runs(steady, np.full(20, 10.0)) == pytest.approx(3.055 * (1 / 3) ** 0.5 * (4 / 3) ** 0.5, rel=1e-3)
    # pooled: two degrees from two runs of two steps; variances 0.5 and 0.5
    assert of_difference(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == pytest.approx(9.925 * 0.5**0.5, rel=1e-3)
    assert within_run([1.0]) is None


def test_blocks_are_as_long_as_steps_depend_on_each_other() -> None:
    independent = np.random.default_rng(0).normal(0, 1, 500)
    slow = np.convolve(independent, np.ones(20), "valid")
    assert block_length(independent) == 3
    assert block_length(slow) > 10
    assert within_run(slow) > 2 * within_run(np.random.default_rng(1).permutation(slow))


def test_a_hundred_pairs_from_one_series_are_the_same(make_side) -> None:
    """Two runs of one program whose steps drift as those of a busy machine do: at most one is called slower."""
    random, verdicts = np.random.default_rng(5), []
    for _ in range(100):
        steps = [20 * (1 + 0.01 * random.normal()) + np.convolve(random.normal(0, 0.3, 130), np.ones(8) / 4, "valid")
                 for _ in range(2)]  # fmt: skip
        before, after = (make_side(step_ms=list(own)) for own in steps)
        verdicts.append(compare(before, after).verdict)
    assert verdicts.count("slower") <= 1
