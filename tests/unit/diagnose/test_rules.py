from __future__ import annotations

import pytest

from rankscope.causes.wording import amount, told_apart
from rankscope.records.evidence import Anomaly, Evidence, Suspect
from support.diagnosing import ADVICE, PHRASE, accuse, find, judge


def evidence(*suspects: Suspect, **more) -> Evidence:
    base = {"ranks": [0, 1, 2, 3], "steps": 6, "step_ms": 100.0, "calls": 60, "matched_pct": 100.0, "overlap_pct": 80.0}
    return Evidence(**{**base, "suspects": list(suspects), **more})


def suspect(rank: int, gains: list[float], cause: str = "input_stall", share: float = 0.9, **more) -> Suspect:
    mean = sum(gains) / len(gains)
    return Suspect(
        rank=rank, cost_ms=mean, error_ms=1.0, gains_ms=gains, excess_ms=mean, explained={cause: share * mean},
        **{"p_value": 0.5 ** len(gains), **more},
    )  # fmt: skip


def test_a_rank_that_costs_every_step_is_named() -> None:
    case = evidence(suspect(2, [20.0] * 6))
    found = judge(case)
    assert (found.kind, found.ranks, found.cause, found.confidence) == ("straggler", [2], "input_stall", "high")
    assert found.cost_ms_per_step == 20
    assert found.sentence == (
        "Rank 2 of 4 holds up every step: 20.0 ± 1.0 ms of each 100 ms step (20 %). It waits for input."
    )
    assert find(case)[0].ranks == [2]
    # 4 devices are 96 hours a day, of which a fifth is 19.2
    assert "That is 19 of its 96 GPU-hours a day." in found.why


@pytest.mark.parametrize(
    ("cause", "recording_ms", "named"),
    [
        ("launch_bound", 18.0, True),  # 20 ms, sure to 1
        ("launch_bound", 19.0, False),
        ("unexplained", 19.0, False),
        ("slow_compute", 25.0, True),  # of the device
        ("input_stall", 25.0, True),  # waiting for input is no part of recording
    ],
)
def test_a_host_that_is_slower_at_everything_may_only_be_recorded_more_slowly(cause, recording_ms, named) -> None:
    case = evidence(suspect(2, [20.0] * 6, cause, share=0.95), recording_ms=recording_ms)
    assert [d.suspect.rank for d in accuse(case)] == ([2] if named else [])


def test_waiting_for_peers_is_recordings_too() -> None:
    # 80 of 100 ms are not work; 20 of them are recording's, so 60 of 80 ms remain, half of them for the host: 37.5 %
    case = evidence(host_ms=40.0, waiting_ms=40.0, recording_ms=20.0)
    assert (case.own_host_ms, case.own_host_pct) == (30.0, 37.5)
    assert judge(case).kind == "host_bound"


def test_a_host_that_is_slower_at_everything_is_told_of_where_hosts_are_the_limit() -> None:
    """GIVEN hosts that take 1.1 and 1.25 times as long WHEN they are the limit THEN the one beyond 1.2 is told of."""
    hosts = [suspect(r, [0.0] * 6, uniform=u) for r, u in ((1, 1.1), (2, 1.25))]
    told = "Host work of rank 2 takes 1.25 times as long as its peers'"
    limited = judge(evidence(*hosts, host_ms=50.0))
    assert [line for line in limited.why if line.startswith("Host work")] == [
        f"{told}, everywhere: taken for its machine (CPU clock, other processes), and not counted as a delay."
    ]
    assert not any(told in line for line in judge(evidence(*hosts)).why)


@pytest.mark.parametrize(
    ("cause", "recording_ms", "device", "told"),
    [
        ("input_stall", 12.0, True, True),
        ("input_stall", 8.0, True, False),
        ("slow_compute", 12.0, True, False),
        ("input_stall", 12.0, False, True),
    ],
)
def test_a_late_host_may_cost_something_else_unrecorded(cause, recording_ms, device, told) -> None:
    case = evidence(suspect(2, [20.0] * 6, cause), recording_ms=recording_ms, device=device)
    found = judge(case)
    assert ("Recording adds 12 ms to each 100 ms step." in found.why) is told


def test_an_episode_is_reported_as_one() -> None:
    case = evidence(suspect(1, [90.0, 0, 0, 0, 0, 0], "host_pause", p_value=0.5))
    found = judge(case)
    assert (found.kind, found.ranks) == ("straggler", [1])
    assert "once" in found.sentence
    assert found.confidence != "high"


@pytest.mark.parametrize(
    "who",
    [
        suspect(1, [3.0] * 6),  # too little
        suspect(1, [30.0, 0, 0, 0, 0, 0], "host_pause"),  # one step, too little over the window
        suspect(1, [20.0, 0, 20.0, 0, 20.0, 0], "slow_compute", p_value=0.125),  # what a busy machine does
        suspect(1, [8.0] * 6, "slow_compute"),  # unnamed and small
    ],
)
def test_no_rank_is_named_for_noise(who) -> None:
    case = evidence(who)
    assert accuse(case) == []
    assert judge(case).kind == "balanced"


def test_two_faults_at_once_are_both_named() -> None:
    case = evidence(suspect(1, [30.0] * 6), suspect(3, [25.0] * 6, "host_sync"))
    assert judge(case).ranks == [1, 3]
    assert [f.ranks for f in find(case)] == [[1], [3]]


def test_ranks_that_take_turns_are_all_named() -> None:
    # each costs 13 % in two steps of eight, too rare to be told alone; together they cost every step
    def turns(cause: str, size: float = 52.0) -> list[Suspect]:
        return [suspect(r, [size if s % 4 == r else 0.0 for s in range(8)], cause, p_value=0.25) for r in range(4)]

    assert sorted(a.suspect.rank for a in accuse(evidence(*turns("host_pause"), steps=8))) == [0, 1, 2, 3]
    assert judge(evidence(*turns("host_pause"), steps=8)).cause == "host_pause"
    # what a busy machine does by itself, and what costs less than any accusation
    assert accuse(evidence(*turns("slow_compute"), steps=8)) == []
    assert accuse(evidence(*turns("host_pause", 16.0), steps=8)) == []
    assert accuse(evidence(*turns("host_pause")[:2], steps=8)) == []  # they leave half of the steps alone


def test_two_faults_are_described_in_sentences() -> None:
    case = evidence(suspect(1, [30.0] * 6), suspect(3, [25.0] * 6, "host_sync"))
    assert judge(case).sentence == (
        "2 ranks hold the job up: rank 1 (waiting for input, 30.0 ± 1.0 ms) and rank 3 (waiting for the device, "
        "25.0 ± 1.0 ms), of each 100 ms step."
    )


def _everything() -> list[tuple[str, list[str]]]:
    """Every title and sentence the rules can make of single ranks."""
    said = []
    for cause in PHRASE:
        for gains in ([30.0] * 6, [180.0, 0, 0, 0, 0, 0]):
            case = evidence(
                suspect(1234, gains, cause, p_value=0.02),
                anomalies=[Anomaly(rank=1111, cause=c, own_ms=90.0, peers_ms=0.1) for c in PHRASE],
            )
            found = find(case)
            verdict = judge(case)
            said += [(f.title, f.evidence) for f in found] + [("", [verdict.sentence, *verdict.why])]
    return said


def test_titles_are_short_and_no_identifier_is_in_a_sentence() -> None:
    for title, lines in _everything():
        assert len(title) <= 60
        for line in [title, *lines]:
            assert not any(c in line for c in ADVICE if "_" in c), line


@pytest.mark.parametrize(
    ("who", "cause", "own", "shown"),
    [
        (1, "host_pause", 4.0, False),  # a side effect of the stall
        (1, "host_sync", 0.1, False),  # many, but no longer than elsewhere
        (1, "allocator", 15.0, True),  # not part of the lateness, and more than 10 % of the step
        (2, "allocator", 5.0, False),  # another rank, little
        (2, "allocator", 15.0, True),
    ],
)
def test_next_to_a_verdict_only_relevant_findings_are_shown(who, cause, own, shown) -> None:
    late = suspect(1, [50.0] * 6)
    late.explained["host_pause"] = 3.0
    case = evidence(late, anomalies=[Anomaly(rank=who, cause=cause, own_ms=own, peers_ms=0.0)])
    assert [f.kind for f in find(case)] == ["input_stall", cause][: 1 + shown]


def test_time_that_the_cause_does_not_explain_is_reported() -> None:
    late = suspect(1, [50.0] * 6, share=0.6)
    late.explained["allocator"] = 18.0  # 36 % of the lateness
    case = evidence(late, anomalies=[Anomaly(rank=1, cause="allocator", own_ms=18.0, peers_ms=0.0)])
    assert [f.kind for f in find(case)] == ["input_stall", "allocator"]


def test_faults_that_take_turns_are_both_named() -> None:
    case = evidence(
        suspect(0, [60.0, 0, 60.0, 0, 60.0, 0], "host_pause", p_value=0.125),
        suspect(1, [0, 60.0, 0, 60.0, 0, 60.0], "host_pause", p_value=0.125),
    )
    assert judge(case).ranks == [0, 1]


def test_a_cause_that_explains_less_than_half_is_not_named() -> None:
    case = evidence(suspect(1, [30.0] * 6, "allocator", share=0.3))
    found = judge(case)
    assert found.cause == "unexplained"
    assert any("leading: allocating and freeing memory" in line for line in found.why)


def test_below_the_clock_s_spread_nothing_is_reported() -> None:
    assert accuse(evidence(suspect(1, [20.0] * 6), clock_spread_us=10_000.0)) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ranks": [0], "missing": [1]}, "only rank 0 of 2 left a usable trace"),
        ({"ranks": [0]}, "This job has one rank"),
        ({"calls": 0}, "no collective was recognised"),
        ({"matched_pct": 20.0}, "only 20 %"),
        ({"refused": "the traces have no step marks"}, "no step marks"),
        ({"steps": 1}, "one step"),
    ],
)
def test_it_abstains_and_names_what_would_decide(more, words) -> None:
    found = judge(evidence(suspect(1, [50.0] * 6), **more))
    assert found.kind == "insufficient_data"
    assert words in found.sentence
    assert found.next
    assert found.ranks == []


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ({}, "different steps"),
        ({"recorded by some ranks only": 40, "process group unknown": 3}, "different steps"),
        ({"process group unknown": 40}, "40 calls were not matched: process group unknown."),
    ],
)
def test_why_most_calls_were_not_matched(reasons, words) -> None:
    found = judge(evidence(suspect(1, [50.0] * 6), matched_pct=20.0, unmatched=reasons))
    assert words in found.why[0]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"host_ms": 50.0}, "host_bound"),
        ({"transfer_ms": 30.0}, "comm_bound"),
        ({"pipeline": True}, "pipeline"),
        ({"host_ms": 50.0, "device": False}, "balanced"),
        ({}, "balanced"),
    ],
)
def test_without_a_straggler_the_limit_is_named(more, kind) -> None:
    case = evidence(**more)
    found = judge(case)
    assert (found.kind, found.ranks, found.cost_ms_per_step) == (kind, [], None)


@pytest.mark.parametrize(
    ("recording_ms", "kind", "finding", "why"),
    [
        # of a step of 90 ms the devices idle 40 ms, 44 %
        (10.0, "host_bound", True, "recording adds 10 ms, without it 40 ms of 90.0 ms remain (44 %)."),
        # of 70 ms 20 ms, 29 %: a finding from 25 % on, the verdict from 30 % on
        (30.0, "balanced", True, "recording adds 30 ms, without it 20 ms of 70.0 ms remain (29 %)."),
        # of 40 ms nothing
        (60.0, "balanced", False, "recording adds 60 ms, without it 0.0 ms of 40.0 ms remain (0 %)."),
    ],
)
def test_what_recording_adds_is_not_laid_at_the_hosts_door(recording_ms, kind, finding, why) -> None:
    case = evidence(host_ms=50.0, host_gain_ms=50.0, recording_ms=recording_ms, kernel_us=40.0, launches=1500.0)
    found = judge(case)
    assert found.kind == kind
    assert found.why[0] == f"The devices idle 50 ms of each 100 ms step while no work is queued; {why}"
    assert [f.kind for f in find(case)] == ["host_bound"] * finding
    assert case.what_if == {"no_host_overhead": max(50.0 - recording_ms, 0.0)}


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"overlap_pct": 0.0, "transfer_ms": 3.0, "network_gain_ms": 0.5}, "comm_exposed"),
        ({"repeats": 4, "repeat_calls": 24.0}, "redundant_sync"),
        ({"host_ms": 60.0, "kernel_us": 2.0, "launches": 1500.0}, "launch_bound"),
        ({"host_ms": 60.0, "kernel_us": 40.0, "launches": 1500.0}, "host_bound"),
        ({"input_ms": 30.0}, "input_stall"),
        ({"pipeline": True}, "pipeline_wait"),
        ({"anomalies": [Anomaly(rank=1, cause="allocator", own_ms=5.0, peers_ms=0.1)]}, "allocator"),
    ],
)
def test_findings_without_a_straggler(more, kind) -> None:
    found = find(evidence(**more))
    assert [f.kind for f in found] == [kind]
    assert found[0].evidence
    assert found[0].advice


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *((0.0, "0.0 ms"), (0.0134, "0.01 ms"), (0.25, "0.25 ms")),
        *((58.7, "59 ms"), (5961.0, "5,961 ms"), (12_000.0, "12.0 s")),
    ],
)
def test_amounts(ms, text) -> None:
    assert amount(ms) == text


def test_the_replay_without_host_overhead_is_not_used_on_a_cpu() -> None:
    case = evidence(device=False, host_gain_ms=40.0)
    assert not any("By replay" in line for line in judge(case).why)
    case = evidence(device=False, host_gain_ms=40.0, network_gain_ms=0.5, balance_gain_ms=0.2)
    assert "By replay no step would gain 1 % from an ideal network or compute shared out evenly." in (judge(case).why)


def test_two_amounts_are_told_apart() -> None:
    """Of 15.2 and 14.9 ms "15 ms against 15 ms" says nothing."""
    assert told_apart(15.2, 14.9) == ("15.2 ms", "14.9 ms")
    assert told_apart(0.212, 0.208) == ("0.212 ms", "0.208 ms")
    assert told_apart(20.0, 10.0) == ("20 ms", "10 ms")
    assert told_apart(7.0, 7.0) == ("7.0 ms", "7.0 ms")
