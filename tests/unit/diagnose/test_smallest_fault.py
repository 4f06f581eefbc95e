"""A verdict without a straggler names the smallest fault that would have been detected."""

from __future__ import annotations

import math

import pytest

from rankscope.diagnose.base.contention import without_machine
from rankscope.diagnose.base.decision import decide
from rankscope.diagnose.verdicts.no_straggler import no_straggler
from rankscope.diagnose.verdicts.pipeline import pipeline
from rankscope.diagnose.verdicts.smallest_fault import smallest_fault
from rankscope.records.evidence import Contention, RankCpu
from support.verdict_kinds import evidence, late


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"visible_pct": 1.83},
            "A device that is 1.8 % slower than the others in all steps would have shown; a rank is",
        ),
        ({"visible_pct": None}, "How much slower a device must be to show is not known"),
        ({"visible_pct": None, "screened": True}, "No rank makes the others wait for 2.5 % of the step"),
        ({"visible_pct": None, "device": False}, "standing still and more operators show from 2 % of the step on"),
    ],
)
def test_the_sentence(more: dict[str, object], says: str) -> None:
    asked = evidence(**more)
    assert says in smallest_fault(asked)
    assert smallest_fault(asked) in no_straggler(asked, []).why
    assert smallest_fault(asked) in pipeline(asked, []).why


def test_on_hosts_alone_a_rank_that_is_compared_place_by_place_is_named_from_there_on() -> None:
    """5 % of a step of 100 ms with a cause of its own, 10 % for a host that is slow at all it does."""
    for cause, least in (("input_stall", 5.0), ("launch_bound", 10.0)):
        assert decide(evidence(late(1, least - 0.1, cause), device=False)) == []
        (found,) = decide(evidence(late(1, least + 0.1, cause), device=False))
        assert (found.suspect.rank, found.cause) == (1, cause)


def test_on_hosts_alone_a_measured_delay_is_named_from_2_percent_on() -> None:
    """Of 100 ms, error of a tenth taken off. Silence counts as much only if the scheduler says that the rank could run:
    otherwise 5 %."""
    nothing = [RankCpu(rank=r, host="node", held_ms=[0.0] * 6, cpu_ms=[50.0] * 6) for r in range(4)]
    for witness, cause, least in (
        (None, "input_stall", 2.0),
        (None, "host_pause", 5.0),
        (Contention(ranks=nothing, gains_ms=[0.0] * 6), "host_pause", 2.0),
    ):
        for cost, named in ((least / 0.9 - 0.1, []), (least / 0.9 + 0.1, [1])):
            suspect = late(1, cost, cause, measured=True)
            case = evidence(suspect, device=False, contention=witness)
            assert [d.suspect.rank for d in decide(case)] == named, (cause, cost)


def test_what_contention_explains_is_part_of_the_error_of_a_measured_rank() -> None:
    """Gains of 5 ms in each step of 100, of which it waited for a CPU 0 and 4 ms in turns: 3 ms are its own, but their
    95 % interval is 2.571 * 2.19 * sqrt(3 / 6) = 4 ms wide to either side."""
    held = [0.0, 4.0] * 3
    ranks = [RankCpu(rank=r, host="node", held_ms=held if r == 1 else [0.0] * 6, cpu_ms=[50.0] * 6) for r in range(4)]
    suspect = late(1, 5.0, "input_stall", measured=True)
    case = evidence(suspect, device=False, contention=Contention(ranks=ranks, gains_ms=[0.0] * 6))
    own = without_machine(suspect, case)
    assert own.cost_ms == pytest.approx(3.0)
    assert own.error_ms == pytest.approx(math.hypot(0.5, 2.571 * 2.191 * math.sqrt(0.5)), rel=1e-3)
    assert decide(case) == []


def test_measured_ranks_are_named_from_2_percent_on_error_taken_off() -> None:
    for cost, named in ((2.1, []), (2.3, [1])):  # its error is a tenth of it: 1.89 and 2.07
        assert [d.suspect.rank for d in decide(evidence(late(1, cost, "slow_compute", measured=True)))] == named
