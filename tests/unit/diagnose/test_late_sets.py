"""Several ranks that are late in the same way: which set they are, and its cost."""

from __future__ import annotations

import pytest

from rankscope.diagnose.base.late_sets import HOST_ADVICE
from rankscope.records.evidence import Evidence, Place, Suspect
from support.diagnosing import judge


def place(kind: str, name: str, *ranks: int) -> Place:
    return Place(kind=kind, name=name, ranks=list(ranks))


HOSTS = [place("host", f"gpu{n}", *range(8 * n, 8 * n + 8)) for n in range(8)]
STAGES = [place("group", "mesh_dp", *range(n, 64, 4)) for n in range(4)]
RAILS = [place("rail", str(n), *range(n, 64, 8)) for n in range(8)]
POSITIONS = [place("mesh", f"{n} of mesh_pp", *range(16 * n, 16 * n + 16)) for n in range(4)]
PLACES = (*HOSTS, *STAGES, *RAILS, *POSITIONS)


def said(costs: dict[int, float], together_ms: float, places=PLACES, cause="slow_compute", delay_ms=None):
    """The verdict on a job of 64 ranks and 100 ms a step; rank -> what it costs once the others are mended. Its own
    extra time is as long, or ``delay_ms``."""
    suspects = [
        Suspect(
            rank=rank, cost_ms=ms, error_ms=ms / 10, gains_ms=[ms] * 6, measured=True, excess_ms=delay_ms or ms,
            explained={cause: delay_ms or ms}, beside=[r for r in costs if r != rank], together_ms=together_ms,
        )
        for rank, ms in costs.items()
    ]  # fmt: skip
    evidence = Evidence(
        ranks=list(range(64)), steps=6, step_ms=100.0, mean_step_ms=100.0, calls=60, matched_pct=100.0,
        suspects=suspects, places=list(places),
    )  # fmt: skip
    return judge(evidence)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (range(8, 16), "All 8 ranks of host gpu1 (8-15)"),
        (range(8, 13), "5 of the 8 ranks of host gpu1 (8-12)"),
        (range(3, 64, 4), "All 16 ranks of process group mesh_dp (3 to 63, every 4th)"),
        (range(5, 64, 8), "All 8 ranks with local rank 5 (5 to 61, every 8th)"),
        (range(16, 32), "All 16 ranks at position 1 of mesh_pp (16-31)"),
        ((3, 40, 41), "Ranks 3, 40, 41 together"),
        # three of eight: not most of the host, however unlikely by chance
        ((8, 9, 10), "Ranks 8-10 together"),
    ],
)
def test_what_the_ranks_have_in_common(ranks, words) -> None:
    verdict = said(dict.fromkeys(ranks, 20.0), 22.0)
    assert verdict.sentence == (
        f"{words} hold the job up: 22 ± 2 ms of each 100 ms step (22 %). The same work takes longer there."
    )
    assert (verdict.ranks, verdict.cost_ms_per_step) == (list(ranks), 22.0)
    assert verdict.cost_error_ms == pytest.approx(2.2)
    assert verdict.next[0].startswith(HOST_ADVICE) == ("host" in words)


def test_two_of_two_ranks_of_a_host_by_chance() -> None:
    # GIVEN hosts of three ranks among 64: two ranks share one of 21 with chance 21 * 3 / 2016 = 3 %
    hosts = [place("host", f"gpu{n}", *range(3 * n, 3 * n + 3)) for n in range(21)]
    assert said({0: 20.0, 1: 20.0}, 22.0, hosts).sentence.startswith("Ranks 0, 1 together")
    # and of two ranks: both are all there are
    hosts = [place("host", f"gpu{n}", 2 * n, 2 * n + 1) for n in range(32)]
    assert said({0: 20.0, 1: 20.0}, 22.0, hosts).sentence.startswith("Both ranks of host gpu0 (0, 1) hold")


def test_a_culprit_and_others() -> None:
    """GIVEN one rank that costs nearly all THEN it is named first, with its own cost."""
    verdict = said({1: 30.0, 2: 6.0}, 36.0, ())
    assert verdict.sentence == (
        "Rank 1 of 64 holds up every step: 30 ± 3 ms of each 100 ms step (30 %). The same work takes longer there. "
        "Late too: rank 2 (6.0 ms)."
    )
    assert (verdict.cost_ms_per_step, verdict.ranks) == (30.0, [1, 2])


def test_equally_slow_stages_of_a_pipeline_are_one_set() -> None:
    """GIVEN four stages that each take 22 ms longer, of which the last gains 21 of 30 ms and the first 10 THEN they are
    the replica, with what all of them cost."""
    replica = place("group", "mesh_pp", 4, 5, 6, 7)
    verdict = said({7: 21.0, 6: 15.0, 5: 12.0, 4: 10.0}, 30.0, [replica], delay_ms=22.0)
    assert verdict.sentence.startswith("All 4 ranks of process group mesh_pp (4-7) hold the job up: 30 ± 3 ms")
    assert verdict.cost_ms_per_step == 30.0


def test_ranks_that_take_turns() -> None:
    """GIVEN 20 + 15 + 5 + 5 ms in steps of their own THEN no one of them is most of it, and they cost 45 ms."""
    verdict = said({0: 20.0, 1: 15.0, 2: 5.0, 3: 5.0}, 45.0, ())
    assert verdict.sentence.startswith("Ranks 0-3 together hold the job up: ")
    assert verdict.cost_ms_per_step == 45.0


def test_for_ranks_late_for_different_causes_the_joint_gain_is_reported() -> None:
    """GIVEN 20 and 8 ms of two causes, and 34 ms where both are mended: late at one place they hide each other."""
    one, other = [
        Suspect(
            rank=rank, cost_ms=ms, error_ms=1.0, gains_ms=[ms] * 6, measured=True, excess_ms=ms,
            explained={cause: ms}, beside=[3 - rank], together_ms=34.0,
        )
        for rank, ms, cause in ((1, 20.0, "input_stall"), (2, 8.0, "slow_compute"))
    ]  # fmt: skip
    both = Evidence(
        ranks=list(range(64)), steps=6, step_ms=100.0, mean_step_ms=100.0, calls=60, matched_pct=100.0,
        suspects=[one, other],
    )  # fmt: skip
    verdict = judge(both)
    assert verdict.ranks == [1, 2]
    assert verdict.why[0] == "Fixing all of them saves 34 ms of each 100 ms step."
    other.beside = [1, 5]  # rank 5 was mended, too, and is not named
    one.beside = [2, 5]
    assert not any("Fixing all" in line for line in judge(both).why)


def test_each_of_several() -> None:
    assert said({1: 20.0, 2: 20.0}, 22.0, (), cause="input_stall").sentence.endswith(" Each waits for input.")
    assert " Their copies " in said({1: 20.0, 2: 20.0}, 22.0, (), cause="h2d_copy").sentence


def test_without_a_cause() -> None:
    sentence = said({1: 20.0, 2: 20.0}, 22.0, (), cause="unexplained").sentence
    assert sentence == (
        "Ranks 1, 2 together hold the job up: 22 ± 2 ms of each 100 ms step (22 %). "
        "No single cause explains most of it."
    )
