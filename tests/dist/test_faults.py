"""The faults of the demo in real launches: rank and cause are as in the table of faults."""

from __future__ import annotations

import sys

import pytest

from rankscope.demo.faults import FAULTS
from support.launching import flags_of, must_tell

pytestmark = [pytest.mark.forked, pytest.mark.alone]

ON_TWO = [(name, 2, bad, None) for bad, name in enumerate(FAULTS)]
"""The bad rank alternates, so that no fault is found by always naming the same one."""
ON_FOUR = [("input_stall", 4, 2, 150), ("between_steps", 4, 0, 150), ("recompile", 4, 1, None), ("turns", 4, 3, None)]
"""Those that a machine with fewer cores than ranks does not hide: what computes more there slows its peers as well.
Steps are longer there, and so are the pauses."""


@pytest.fixture
def told(start, finish, tmp_path):
    """The report on a fault, launched as a user does, with the window early in a short job."""

    def told(name, ranks, bad, size, run):
        words = ["--fault", name, "--ranks", ranks, "--bad-rank", bad]
        words += [] if size is None else ["--size", size]
        settings = [f"run.dir={run}", "analysis.hta=false"]
        if not any(s.startswith("schedule.") for s in FAULTS[name].settings):
            words += ["--steps", 16]
            settings.append("schedule.skip_first=3")
        done = finish(start([sys.executable, "-m", "rankscope", "demo", *words, *flags_of(*settings)]), run)
        assert done.code == 0, done.stderr
        return done.report

    return told


@pytest.mark.parametrize(
    ("name", "ranks", "bad", "size"),
    [(n, r, b % r, s) for n, r, b, s in ON_TWO] + [pytest.param(*four, marks=pytest.mark.long) for four in ON_FOUR],
)
def test_rank_and_cause_are_those_that_were_planted(name, ranks, bad, size, told, tmp_path):
    fault = FAULTS[name]
    lacking = fault.lacking(ranks)
    if lacking is not None:
        pytest.skip(f"needs {lacking}")

    report = told(name, ranks, bad, size, tmp_path / "RUN")

    assert report.errors == []
    verdict, stragglers = report.verdict, fault.stragglers(ranks, bad)
    if not stragglers:
        assert verdict.ranks == [], verdict.sentence
        findings = [(f.kind, f.ranks) for f in report.findings]
        assert verdict.kind in ("balanced", "contended"), verdict.sentence
        assert fault.cause is None or fault.cause in [kind for kind, _ in findings], findings
        return
    must_tell(report, "straggler", stragglers, fault.cause)
