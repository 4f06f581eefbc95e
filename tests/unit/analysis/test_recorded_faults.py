"""The demo's faults as two real ranks recorded them: who and why, as the table of faults has it, or nobody.

tests/dist/test_faults.py launches the others, and in ``make test-long`` all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.demo.faults import FAULTS
from rankscope.reduced.collected import load_objects

pytestmark = pytest.mark.data

DATA = Path(__file__).parents[2] / "data" / "faults"
BAD = {
    "burst": 0, "comm_exposed": 1, "extra_backward": 0, "extra_compute": 1, "rare_pause": 1, "recompile": 0,
    "redundant_sync": 0, "slow_compute": 0, "uneven_work": 1,
}  # fmt: skip
"""The rank with the fault; of comm_exposed and redundant_sync all ranks have it, and none is to be named."""


@pytest.mark.parametrize("name", BAD)
def test_the_truth_is_told(name: str) -> None:
    fault = FAULTS[name]
    report = analyze(load_objects([DATA / f"{name}.columns"]), hta=False)
    assert report.errors == []
    verdict, due = report.verdict, fault.stragglers(2, BAD[name])
    if due:
        assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler", due, fault.cause)
    else:
        assert (verdict.kind, verdict.ranks) == ("balanced", [])
        assert fault.cause in [finding.kind for finding in report.findings]


def test_every_record_is_tested() -> None:
    assert {path.stem for path in DATA.glob("*.columns")} == set(BAD)
