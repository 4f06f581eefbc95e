"""The demo's faults, launched for real: who and why, as the table of faults has it, or nobody."""

from __future__ import annotations

import sys

import pytest

from rankscope.demo.faults import FAULTS

ON_TWO = [(name, 2, bad) for bad, name in enumerate(FAULTS)]
"""The bad rank alternates, so that no fault is found by always naming the same one."""
ON_FOUR = [("input_stall", 4, 2), ("between_steps", 4, 0), ("recompile", 4, 1), ("turns", 4, 3)]
"""Those that a machine with fewer cores than ranks does not hide: what computes more there slows its peers as well."""


@pytest.mark.parametrize(("name", "ranks", "bad"), [(n, r, b % r) for n, r, b in ON_TWO + ON_FOUR])
def test_the_truth_is_told(name, ranks, bad, start, finish, tmp_path):
    fault = FAULTS[name]
    lacking = fault.lacking(ranks)
    if lacking is not None:
        pytest.skip(f"needs {lacking}")
    sooner = [] if any("skip_first" in s or "active" in s for s in fault.settings) else ["schedule.skip_first=3"]
    words = ["--fault", name, "--ranks", ranks, "--bad-rank", bad]
    if sooner:
        words += ["--steps", 16]
    for setting in (f"run.dir={tmp_path / 'RUN'}", "analysis.hta=false", *sooner):
        words += ["-S", setting]

    done = finish(start([sys.executable, "-m", "rankscope.cli", "demo", *words]))

    assert done.code == 0, done.stderr
    report = done.report
    assert report.errors == []
    told = [(f.kind, f.ranks) for f in report.findings]
    verdict = report.verdict
    culprits = fault.culprits(ranks, bad)
    assert sorted(verdict.ranks) == culprits, (verdict.sentence, told)
    if culprits:
        assert verdict.cause == fault.cause, (verdict.sentence, told)
        assert all(rank in culprits for f in report.findings for rank in f.ranks if f.kind == fault.cause), told
    else:
        assert verdict.kind == "balanced", verdict.sentence
        assert fault.cause is None or fault.cause in [kind for kind, _ in told], told
