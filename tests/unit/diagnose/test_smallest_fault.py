"""A verdict without a straggler names the smallest fault that would have been detected."""

from __future__ import annotations

import pytest

from rankscope.diagnose.base.decision import decide
from rankscope.diagnose.verdicts.no_straggler import no_straggler, pipeline
from rankscope.diagnose.verdicts.smallest_fault import smallest_fault
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
        ({"visible_pct": None, "device": False}, "a delay with a cause of its own shows from 5 % of the step on"),
    ],
)
def test_the_sentence(more: dict[str, object], says: str) -> None:
    asked = evidence(**more)
    assert says in smallest_fault(asked)
    assert smallest_fault(asked) in no_straggler(asked, []).why
    assert smallest_fault(asked) in pipeline(asked, []).why


def test_on_hosts_alone_a_rank_is_named_from_there_on() -> None:
    """5 % of a step of 100 ms with a cause of its own, 10 % for a host that is slow at all it does: as is said."""
    for cause, least in (("input_stall", 5.0), ("launch_bound", 10.0)):
        assert decide(evidence(late(1, least - 0.1, cause), device=False)) == []
        (found,) = decide(evidence(late(1, least + 0.1, cause), device=False))
        assert (found.suspect.rank, found.cause) == (1, cause)


def test_measured_ranks_are_named_from_2_percent_on_error_taken_off() -> None:
    for cost, named in ((2.1, []), (2.3, [1])):  # its error is a tenth of it: 1.89 and 2.07
        assert [d.suspect.rank for d in decide(evidence(late(1, cost, "slow_compute", measured=True)))] == named
