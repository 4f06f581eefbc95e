"""The verdict between windows on simulated step logs (tests/support/step_log_worlds.py)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rankscope.between.judge import judge, judge_logs
from rankscope.between.recurring import binomial_tail, least_seen, recurring
from rankscope.between.step_logs import read_step_log
from rankscope.between.stretches import Stretch, is_growing, joined, stretches
from rankscope.between.table import side_by_side
from rankscope.records.running.step_log import CHECKPOINT, EVALUATION, RECORDED
from support.step_log_worlds import world

pytestmark = pytest.mark.data

STEP_LOGS = Path(__file__).parents[2] / "data" / "step_logs"


def verdict(seed: int = 0, on_host: bool = True, **job):
    return judge_logs(world(seed=seed, **job), on_host=on_host)


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 240), marks=pytest.mark.long)])
def test_no_rank_is_named_in_healthy_jobs(seeds: range):
    accused = []
    for seed in seeds:
        job = {
            "ranks": (2, 4, 8, 3)[seed % 4],
            "steps": (300, 500)[seed % 2],
            "busy": (0, 0.02, 0.2, 0.5)[seed // 4 % 4],
            "noise": (0.01, 0.05, 0.2)[seed // 2 % 3],
            "tail": (0, 0.02, 0.1)[seed // 5 % 3],
            "offset": (0.003, 0.01)[seed // 3 % 2],
            "meets": ("backward", "forward")[seed % 7 == 0],
        }
        found = verdict(seed, **job)
        if found.kind not in ("nobody", "contended"):
            accused.append((seed, job, found.sentence))
    assert accused == []


PATTERNS = {
    "every": lambda step, rank: 20.0 * (rank == 1 and step % 25 == 24),
    "since": lambda step, rank: 20.0 * (rank == 1 and step >= 200),
    "drifting": lambda step, rank: (step - 200) / 12.5 if rank == 1 and step > 200 else 0.0,
    "spell": lambda step, rank: 20.0 * (rank == 1 and 300 <= step < 330),
    "always": lambda step, rank: 20.0 * (rank == 1),
}


@pytest.mark.parametrize("place", ["input", "before", "forward", "backward", "after"])
@pytest.mark.parametrize("kind", PATTERNS)
def test_who_is_late_is_named_with_pattern_and_place(kind: str, place: str):
    for seed, ranks, busy in ((0, 2, 0.0), (1, 4, 0.2), (2, 8, 0.0)):
        if busy and place == "backward":
            continue  # it is CPU time, of which a busy machine may take any amount
        found = verdict(seed, ranks=ranks, busy=busy, late=PATTERNS[kind], place=place)
        assert (found.kind, found.ranks) == ("named", [1]), found
        (pattern,) = found.patterns
        assert (pattern.kind, pattern.place) == (kind, place)


@pytest.mark.parametrize("kind", PATTERNS)
def test_a_slow_device_is_named_by_the_devices_own_times(kind: str):
    for seed, ranks in ((0, 2), (1, 4)):
        found = verdict(seed, ranks=ranks, late=PATTERNS[kind], place="forward", device=True, on_host=False)
        assert (found.kind, found.ranks) == ("named", [1]), found
        assert (found.patterns[0].kind, found.patterns[0].place) == (kind, "forward")


def test_on_devices_slow_input_that_is_overlapped_names_no_rank():
    accused = []
    for seed in range(6):
        logs = world(seed=seed, ranks=(2, 4)[seed % 2], device=True)
        logs[1].entries["input"] = 15_000  # the device has work for longer than that
        found = judge(side_by_side(logs), on_host=False)
        accused += [found.sentence] * (found.kind != "nobody")
    assert accused == []


def test_cost_and_size_of_a_burst():
    found = verdict(late=PATTERNS["every"], noise=0.01, tail=0.0, offset=0.0)
    (pattern,) = found.patterns
    # steps 24, 49, ... 699, compared from step 10 on: 28 of 690
    assert (pattern.period, pattern.first, pattern.seen, pattern.of) == (25, 24, 28, 28)
    assert pattern.size_ms == pytest.approx(20, abs=1)
    assert pattern.cost_ms == pytest.approx(20 * 28 / 690, abs=0.05)
    assert pattern.p_value < 1e-9
    assert found.sentence.startswith("Rank 1 is 20 ms late in every 25th step, seen 28 of 28 times, in the data loader")


def test_when_a_rank_begins_to_be_late():
    found = verdict(late=PATTERNS["since"], noise=0.01, tail=0.0)
    assert (found.patterns[0].first, found.patterns[0].last) == (200, None)
    found = verdict(late=PATTERNS["spell"], noise=0.01, tail=0.0)
    assert (found.patterns[0].first, found.patterns[0].last) == (300, 329)


def test_ranks_that_take_turns_are_reported_as_such():
    found = verdict(ranks=4, late=lambda step, rank: 20.0 * (step % 10 == 9 and step // 10 % 4 == rank))
    assert (found.kind, sorted(found.ranks)) == ("turns", [0, 1, 2, 3])
    assert [(p.kind, p.period) for p in found.patterns] == [("turns", 40)]


def test_a_rank_that_is_late_irregularly_too_often():
    late = np.random.default_rng(5).random(700) < 0.06
    found = verdict(late=lambda step, rank: 30.0 * (rank == 1 and late[step]), tail=0.0)
    assert (found.kind, found.ranks, found.patterns[0].kind) == ("named", [1], "bursts")


def test_what_strikes_any_rank_in_every_25th_step_is_nobodys():
    """One of four ranks at random: by chance one of them is struck in most of every 75th step."""
    accused = []
    for seed in range(12):
        owners = np.random.default_rng(seed + 9).integers(4, size=28)
        late = lambda step, rank, owners=owners: 30.0 * (step % 25 == 20 and owners[step // 25] == rank)  # noqa: E731
        found = verdict(seed, ranks=4, late=late)
        accused += [found.sentence] * bool(found.ranks)
    assert accused == []


def test_two_ranks_with_periods_of_their_own():
    for other in (20, 25):
        late = lambda step, rank, n=other: 20.0 * (step % {1: n, 2: 40}.get(rank, 999) == {1: 3, 2: 11}.get(rank, 998))  # noqa: E731
        found = verdict(ranks=4, steps=1000, late=late)
        assert {(tuple(p.ranks), p.period) for p in found.patterns} == {((1,), other), ((2,), 40)}


def test_a_rank_that_is_slower_after_each_evaluation():
    marks = {step: dict.fromkeys(range(4), EVALUATION) for step in range(50, 700, 50)}
    found = verdict(
        ranks=4, flags=marks, late=lambda step, rank: 20.0 * (rank == 1 and step >= 50 and 2 <= step % 50 < 12)
    )
    assert (found.kind, found.ranks) == ("named", [1])


def test_a_single_long_stall_is_told_and_accuses_nobody():
    found = verdict(late=lambda step, rank: 10_000.0 * (rank == 1 and step == 333))
    assert (found.kind, found.ranks) == ("nobody", [])
    (pattern,) = found.patterns
    assert (pattern.kind, pattern.ranks, pattern.first, pattern.seen, pattern.p_value) == ("stall", [1], 333, 1, None)
    assert pattern.cost_ms == pytest.approx(10_000 / 690, rel=0.01)
    assert found.sentence.startswith("No rank stands out in 690 steps, but in single ones: Rank 1 was 10")


def test_what_all_ranks_do_alike_accuses_nobody():
    bimodal = np.random.default_rng(3).random(700) < 0.4  # long sequences
    for everyone in (
        lambda step: step / 20,
        lambda step: 30.0 * (step > 300),
        lambda step: 25.0 * bimodal[step],
        lambda step: 60.0 * (step % 4 == 3),  # accumulation of gradients
    ):
        found = verdict(ranks=4, everyone=everyone)
        assert found.kind in ("nobody", "alike")
        assert not any(p.accuses for p in found.patterns)


def test_what_would_have_been_named_is_told_where_nobody_is():
    """690 steps without any lateness: four repetitions are the fewest, and 690 // 4 = 172 steps the longest period."""
    quiet = np.zeros((2, 690))
    # 4 ln 690 = 26.1 is more than ln(80400 * 2 / 0.001) = 18.9; 0.1 % of all steps are 0.172 of one in 172
    assert least_seen(quiet, 40.0, 1e-3, 0.001) == (pytest.approx(6.88), 172)
    assert least_seen(quiet[:, :116], 40.0, 1e-3, 0.001) == (2.0, 29)  # 4 ln 116 = 19.01; 5 % of a step
    noisy = quiet.copy()
    noisy[1, ::3] = 3.0  # a third of the steps are above 5 % of the step, and none above 10 %
    assert least_seen(noisy[:, :116], 40.0, 1e-3, 0.001) == (4.0, 29)
    assert least_seen(np.full((2, 690), 40.0), 40.0, 1e-3, 0.001) is None
    calm = {"noise": 0.01, "tail": 0.0, "offset": 0.0}
    (note,) = verdict(**calm).notes
    assert note == "a rank that is 6.9 ms late once in 172 steps, or more often, would have been named"
    for size, ranks in ((8.0, [1]), (6.0, [])):  # and so it is
        burst = lambda step, rank, size=size: size * (rank == 1 and step % 172 == 15)  # noqa: E731
        assert verdict(**calm, late=burst).ranks == ranks


def test_a_log_that_ends_early_is_left_out():
    logs = world(ranks=4, late=PATTERNS["every"])
    logs[3] = logs[3].between(0, 60)
    found = judge_logs(logs)
    assert (found.ranks, found.steps) == ([1], 690)
    assert found.notes == ["the step log of rank 3 ends early and was left out"]


def test_who_has_more_to_do_before_a_slower_peer_computes_in_its_backward_is_not_waited_for():
    # rank 1 has 3 ms more before the ranks meet, and rank 0 computes 10 ms more where they do
    job = world(noise=0.01, tail=0.0, offset=0.0, late=lambda step, rank: 3.0 * (rank == 1))
    slower = world(noise=0.01, tail=0.0, offset=0.0, late=lambda step, rank: 10.0 * (rank == 0), place="backward")
    for name in ("input", "before"):
        slower[1].entries[name] = job[1].entries[name]
    slower[1].entries["backward"] = np.maximum(slower[1].entries["backward"].astype(int) - 3000, 0)
    assert judge(side_by_side(job)).ranks == [1]
    assert judge(side_by_side(slower)).ranks == [0]


def test_delays_hidden_in_the_backward_name_no_rank():
    for kind in PATTERNS:
        found = verdict(late=PATTERNS[kind], place="hidden")
        assert found.ranks == [], kind


@pytest.mark.parametrize("kind", PATTERNS)
def test_it_is_named_where_the_calls_were_recorded(kind):
    found = verdict(late=PATTERNS[kind], place="hidden", issued=True)
    assert found.ranks == [1]
    assert (found.patterns[0].kind, found.patterns[0].place, found.patterns[0].cpu) == (kind, "backward", False)


def on_devices(seed: int = 0, **job):
    return judge_logs(world(seed=seed, tail=0.0, **job), on_host=False, devices=True)


@pytest.mark.parametrize("waits_first", [False, True])
@pytest.mark.parametrize("place", ["input", "forward", "hidden"])
def test_hosts_that_launch_late_now_and_then_delay_all_devices(place, waits_first):
    # hosts launch for 16 of 40 ms: 40 ms more in every 25th step make it 56 ms, which costs 16
    late = lambda step, rank: 40.0 * (rank == 1 and step % 25 == 24)  # noqa: E731
    found = on_devices(late=late, place=place, launches=0.6, waits_first=waits_first)
    (pattern,) = found.patterns
    assert (found.ranks, pattern.kind, pattern.period) == ([1], "every", 25)
    assert pattern.place == {"hidden": "backward"}.get(place, place)
    assert pattern.cost_ms == pytest.approx(16 / 25, rel=0.25)
    late = lambda step, rank: 40.0 * (rank == 1 and 300 <= step < 400)  # noqa: E731
    found = on_devices(late=late, place=place, launches=0.6, waits_first=waits_first)
    assert (found.ranks, found.patterns[0].kind) == ([1], "spell")


def test_times_of_a_device_that_ranks_share_are_no_evidence():
    # the other rank's work is in them, so that rank 1 seems to be late on its device; its host is not
    logs = world(late=lambda step, rank: 5.0 * (rank == 1), place="before", device=True, tail=0.0)
    assert judge_logs(logs, on_host=False, devices=True).ranks == [1]
    assert judge_logs(logs, on_host=False, devices=True, shared=True).ranks == []


def test_hosts_that_are_ahead_of_their_devices_may_be_late():
    always = lambda step, rank: 15.0 * (rank == 1)  # noqa: E731
    everyone = lambda step, rank: 60.0 * (step % 25 == 24) + always(step, rank)  # noqa: E731
    for seed in range(10):
        for late in (None, always, everyone):
            found = on_devices(seed, late=late, place="hidden", launches=0.6, waits_first=bool(seed % 2))
            assert found.ranks == [], (seed, found.sentence)


def test_a_part_of_the_steps_is_enough():
    # of every 512 steps the recorder held 100 when it was read: the rank sleeps in every 25th
    logs = world(steps=4000, late=PATTERNS["every"], place="hidden", issued=True)
    for log in logs.values():
        log.entries["issued"][np.arange(4000) % 512 < 412] = 0
    found = judge_logs(logs)
    assert (found.ranks, [(p.kind, p.period, p.place) for p in found.patterns]) == ([1], [("every", 25, "backward")])
    assert found.notes == ["704 steps were compared as far as the flight recorder has their collectives"]


def test_healthy_jobs_of_which_the_calls_were_recorded():
    for seed in range(20):
        assert verdict(seed=seed, issued=True).ranks == [], seed


def test_steps_that_are_long_on_all_ranks_name_no_rank():
    found = verdict(ranks=4, everyone=lambda step: 30.0 * (step % 50 == 49))
    assert (found.kind, found.ranks) == ("alike", [])
    assert (found.patterns[0].kind, found.patterns[0].period) == ("every", 50)
    # a host that waits for its device in every 50th step has such steps, and none of them is slow
    assert verdict(ranks=4, everyone=lambda step: 30.0 * (step % 50 == 49), on_host=False).kind == "nobody"


def test_evaluations_and_checkpoints_are_reported_as_such():
    evaluation = {step: dict.fromkeys(range(4), EVALUATION) for step in range(49, 700, 50)}
    found = verdict(ranks=4, everyone=lambda step: 300.0 * (step % 50 == 49), flags=evaluation)
    assert (found.kind, found.ranks) == ("nobody", [])
    (pattern,) = found.patterns
    assert (pattern.kind, pattern.ranks, pattern.period, pattern.seen) == ("evaluation", [], 50, 14)
    checkpoint = {step: {0: CHECKPOINT} for step in range(39, 700, 40)}
    found = verdict(late=lambda step, rank: 200.0 * (rank == 0 and step % 40 == 39), place="before", flags=checkpoint)
    assert (found.kind, found.ranks) == ("nobody", [])
    (pattern,) = found.patterns
    assert (pattern.kind, pattern.ranks, pattern.period, pattern.seen) == ("checkpoint", [0], 40, 17)


def test_a_flag_of_most_steps_marks_nothing():
    flags = {step: dict.fromkeys(range(2), EVALUATION) for step in range(700)}  # dropout at inference, say
    assert verdict(late=PATTERNS["every"], flags=flags).ranks == [1]


def test_recorded_steps_and_the_next_are_not_compared():
    flags = {step: {0: RECORDED} for step in range(300, 308)}
    table = side_by_side(world(flags=flags))
    assert np.flatnonzero(~table.compared).tolist() == [step - 10 for step in range(300, 309)]


def test_too_few_steps_and_too_few_ranks_carry_no_verdict():
    assert verdict(steps=100).kind == "insufficient_data"
    assert judge(side_by_side(dict(list(world().items())[:1]))).kind == "insufficient_data"


def test_delays_by_a_busy_machine_are_attributed_to_it():
    found = verdict(busy=0.4)
    assert found.kind == "contended"
    assert found.held_ms == pytest.approx(0.4 * 40, rel=0.2)


def test_on_a_busy_machine_more_cpu_time_is_not_a_ranks_own():
    late = {"late": PATTERNS["spell"], "place": "backward", "noise": 0.01, "tail": 0.0}
    assert verdict(**late).ranks == [1]
    assert verdict(**late, busy=0.2).ranks == []


def test_what_the_scheduler_held_up_is_not_a_ranks_own():
    """Rank 1 shares its core with another process from step 200 on: the counts of the scheduler say so."""
    job = world(noise=0.01, tail=0.0)
    late = world(noise=0.01, tail=0.0, late=PATTERNS["since"], place="before")
    late[1].entries.flags.writeable = False
    entries = late[1].entries.copy()
    entries["held"][200:] += 20_000
    late[1] = type(late[1])(entries, late[1].spans)
    assert judge(side_by_side(late)).ranks == []
    assert judge(side_by_side(job)).ranks == []


# ---------------------------------------------------------------- the tests themselves


def test_the_tail_of_the_binomial_distribution():
    # P(at least 2 of 3 at 1/2) = (3 + 1) / 8
    assert math.exp(binomial_tail(2, 3, 0.5)) == pytest.approx(0.5)
    assert math.exp(binomial_tail(3, 3, 0.1)) == pytest.approx(1e-3)


def test_a_period_is_found_by_its_steps_and_holes_do_not_hide_it():
    charge, compared = np.zeros(400), np.ones(400, bool)
    charge[7::20] = 10.0
    compared[100:160] = False
    found = recurring(charge, compared, usual=20.0)
    assert (found.period, found.place, found.seen, found.of) == (20, 7, 17, 17)  # 20 less three in the hole
    assert recurring(np.zeros(400), compared, usual=20.0) is None


def test_stretches_begin_and_end_with_their_steps():
    charge = np.zeros(500)
    charge[203:347] = 10.0
    (found,) = stretches(charge, 40.0, [0.0, 0.0, 0.0])
    assert (found.begin, found.end, found.seen) == (203, 347, 144)
    assert stretches(np.zeros(500), 40.0, [0.0, 0.0, 0.0]) == []


def test_a_short_stretch_of_much_lateness_is_found_where_little_lateness_is_usual():
    charge = np.where(np.arange(600) % 10 < 5, 4.0, 0.0)  # in every other group, 10 % of a step
    charge[300:330] = 40.0
    (found,) = stretches(charge, 40.0, [0.5, 0.0, 0.0])[:1]
    assert (found.begin, found.end, found.seen) == (300, 330, 30)
    # 6 groups of 120, all struck, where 1 of 120 is by chance: 120 x (1/120 / 0.8) ** 6, at three levels
    assert found.log_p == pytest.approx(math.log(3 * 120) - 6 * math.log(0.8 * 120))


def test_stretches_next_to_each_other_are_one():
    parts = [Stretch(250, 600, 340, -300.0), Stretch(100, 120, 20, -9.0), Stretch(205, 248, 30, -12.0)]
    assert joined(parts) == [Stretch(205, 600, 370, -300.0), Stretch(100, 120, 20, -9.0)]


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_rank_whose_core_is_slower_for_a_while_is_not_blamed(everywhere: bool):
    # GIVEN a rank whose work takes 30 % more CPU time in 100 of 690 steps, in all places or all of it in one
    table = side_by_side(world(noise=0.01, tail=0.0))
    at, worked = slice(200, 300), ("before", "forward", "backward", "after")
    more = {name: 0.3 * table.places[name][1, at] for name in worked}
    total = sum(more.values())
    for name in worked:
        table.places[name][1, at] += more[name] if everywhere else total * (name == "forward")
    table.own[1, at] += total
    table.cpu[1, at] += total
    table.met[0, at] += total  # its peer waits
    table.step[:, at] += total
    # THEN who does more is named, and who does the same more slowly is not
    found = judge(table)
    if everywhere:
        assert (found.kind, found.ranks) == ("nobody", [])
        slower = f"all work of rank 1 took more CPU time from step {table.first + 200} to"
        assert any(note.startswith(slower) for note in found.notes)
    else:
        assert (found.kind, found.ranks, found.patterns[0].kind) == ("named", [1], "spell")
        assert (found.patterns[0].place, found.patterns[0].cpu) == ("forward", True)


def test_growing_is_not_just_being_late():
    rng = np.random.default_rng(0)
    assert is_growing(np.linspace(0, 20, 300) + rng.normal(0, 5, 300))
    assert is_growing(np.concatenate([np.zeros(150), np.linspace(0, 20, 150)]) + rng.normal(0, 2, 300))
    assert not is_growing(np.full(300, 20.0) + rng.normal(0, 1, 300))
    assert not is_growing(np.repeat([0.0, 20.0], 150) + rng.normal(0, 5, 300)), "late from a step on"


@pytest.mark.parametrize(
    ("job", "place"),
    [
        ("burst_input_host", "input"),
        ("burst_input_events", "input"),
        ("burst_backward_events", "backward"),
        ("none_input_events", ""),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_recorded_jobs_with_nccl(job: str, place: str, shared: bool):
    """Real step logs, see tests/data/step_logs; their ranks share a device, and may be judged as if they did not."""
    logs = {rank: read_step_log(STEP_LOGS / f"nccl_{job}_{rank}.bin.gz") for rank in (0, 1)}
    found = judge_logs(logs, on_host=False, devices=True, shared=shared)
    if not place:
        assert (found.kind, found.patterns) == ("nobody", [])
        return
    (pattern,) = found.patterns
    assert (found.ranks, pattern.kind, pattern.period, pattern.first % 25) == ([1], "every", 25, 24)
    assert pattern.place == place
    assert 20 < pattern.size_ms < 45, "of 40 ms"
    assert pattern.cost_ms < 40 / 25


@pytest.mark.parametrize("steps", [149, 150, 151])
@pytest.mark.parametrize("job", ["burst_input_host", "burst_backward_events"])
def test_a_log_that_ends_with_a_struck_step(job: str, steps: int):
    """On devices a peer may wait for a step in the next one only. Step 149 is struck, and of 150 steps the last."""
    logs = {rank: read_step_log(STEP_LOGS / f"nccl_{job}_{rank}.bin.gz").between(0, steps) for rank in (0, 1)}
    found = judge_logs(logs, on_host=False, devices=True, shared=True)
    (pattern,) = found.patterns
    assert (found.ranks, pattern.period) == ([1], 25)
    assert pattern.seen == pattern.of == (5 if steps == 151 else 4)


@pytest.mark.long
def test_nobody_is_accused_in_healthy_jobs_by_the_other_ways_to_look() -> None:
    accused = []
    for seed in range(120):
        job = {
            "ranks": (2, 4, 8, 3)[seed % 4],
            "steps": (300, 500)[seed % 2],
            "noise": (0.01, 0.05, 0.2)[seed // 2 % 3],
            "tail": (0, 0.02, 0.1)[seed // 5 % 3],
        }
        recorded = world(seed=seed, busy=(0, 0.02, 0.2, 0.5)[seed // 4 % 4], issued=True, **job)
        launched = world(seed=seed, launches=(0.2, 0.6, 0.05)[seed // 4 % 3], waits_first=bool(seed % 2), **job)
        verdicts = (judge_logs(recorded), judge_logs(launched, on_host=False, devices=True))
        accused += [(seed, job, found.sentence) for found in verdicts if found.ranks]
    assert accused == []
