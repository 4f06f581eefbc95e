"""The public Python API: what docs/api.md promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rankscope
from rankscope import errors
from rankscope.report import write_report

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "data" / "runs" / "ddp_input"


def test_a_run_is_analysed_and_its_report_read_back(tmp_path: Path) -> None:
    report = rankscope.analyze(rankscope.load_traces([str(RUN)], cache=False), rankscope.read_manifest(RUN), hta=False)
    assert (report.verdict.kind, report.verdict.cause) == ("straggler", "input_stall")
    assert report.run.source == "run"
    write_report(report, tmp_path)
    assert rankscope.read_report(tmp_path).verdict.ranks == report.verdict.ranks
    with pytest.raises(errors.RunDirError, match=r"report\.json"):
        rankscope.read_report(tmp_path / "nowhere")


def test_nothing_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys, rankscope; assert 'numpy' not in sys.modules; rankscope.read_report; assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'secrets'"):
        rankscope.secrets  # noqa: B018


def test_the_documentation_names_all_of_it() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`rankscope\.(\w+)\(", text))
    assert named == set(rankscope.__all__) - {"__version__"}
