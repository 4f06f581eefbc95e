"""The faults of the demo in real launches: rank and cause are as in the table of faults.

``make test`` launches the faults that have no record in tests/data/faults. The verdicts on the recorded ones are tested
by tests/unit/analysis/test_recorded_faults.py, and ``make test-long`` launches them as well.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest

from rankscope.demo.faults import FAULTS
from support.launching import TORCHRUN, flags_of, must_tell

pytestmark = pytest.mark.forked

ELSEWHERE = {path.stem for path in (Path(__file__).parents[1] / "data" / "faults").glob("*.columns")} | {
    "hf_loader",  # the pause of input_stall
    "host_pause",  # a pause in forward: tests/dist/test_capture.py
    "between_steps",  # a shorter pause where burst has its own, in each step
}
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


@pytest.mark.alone
@pytest.mark.parametrize(
    ("name", "ranks", "bad", "size"),
    [pytest.param(n, r, b % r, s, marks=[pytest.mark.long] * (n in ELSEWHERE)) for n, r, b, s in ON_TWO]
    + [pytest.param(*four, marks=pytest.mark.long) for four in ON_FOUR],
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


EACH = """
    import argparse, json, sys, types
    from rankscope.demo import plant, train

    slept = {}
    for name in sys.argv[1:]:
        pauses = slept[name] = []
        plant.time = types.SimpleNamespace(sleep=pauses.append)
        with plant.planted(argparse.Namespace(fault=name, bad_rank=0, size=None)) as planted:
            train.train(2, 1, planted)
    print(json.dumps(slept), flush=True)
"""


def test_every_job_of_the_table_trains_and_pauses_where_it_should(start, finish, tmp_path):
    # GIVEN two steps of each, 0 and 1, on one rank, which is the bad one
    names = [n for n, fault in FAULTS.items() if fault.script == "train.py" and fault.lacking(1) is None]
    script = tmp_path / "each.py"
    script.write_text(textwrap.dedent(EACH))
    done = finish(start([*TORCHRUN, "--nproc-per-node", 1, script, *names]))
    assert done.code == 0, done.stderr
    # THEN it pauses for its size, in seconds; who pauses after every 25th step does not yet
    due = {"input_stall": [0.06] * 2, "host_pause": [0.05] * 2, "between_steps": [0.05] * 2, "rare_pause": [0.4],
           "turns": [0.3] * 2}  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == {name: due.get(name, []) for name in names}
