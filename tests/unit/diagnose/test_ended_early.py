"""What a job without a usable trace is said to have done."""

from __future__ import annotations

import pytest

from rankscope.diagnose.verdicts.ended_early import ended_early
from rankscope.records.evidence import Evidence, JobEnded
from rankscope.records.rank import NOT_PLACED


@pytest.mark.parametrize(
    ("lost", "said", "advised"),
    [
        ("its process ended before the window", "the job ended after 40 steps, before any was recorded", "skip_first"),
        (f"{NOT_PLACED} ; it is in /tmp/spool (no room)", "what was recorded is not in the run directory", "gather"),
    ],
)
def test_traces_that_stayed_on_their_node_are_not_said_to_be_unrecorded(lost: str, said: str, advised: str) -> None:
    ended = JobEnded(exit_code=0, steps=40, traces=False)
    verdict = ended_early(Evidence(ranks=[], missing=[0, 1], lost={lost: [0, 1]}, ended=ended))
    assert said in verdict.sentence
    assert any(lost in line for line in verdict.why)
    assert advised in verdict.next[0]
