"""Entries of other packages through entry points, also broken ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope import plugins

CAUSES = """
import dataclasses
from rankscope.causes import host_pause, input_stall

def claim(host):
    return host.loading()

def broken(host):
    raise RuntimeError("no luck")

CAUSE = dataclasses.replace(host_pause.CAUSE, name="nap", phrase="it naps", noun="napping", host_time=claim)
BROKEN = dataclasses.replace(CAUSE, name="broken", host_time=broken)
TAKEN = input_stall.CAUSE
"""
RULES = """
from rankscope.diagnose.base.rule import Rule, job_finding

def find(case):
    return job_finding(case.evidence, "cloudy", "It is cloudy", ["Look up."], "low")

RULE = Rule(kind="cloudy", noun="clouds", advice=("Wait.",), find=find)
"""
SECTIONS = """
from rankscope.report.common.section import Section

CLOUDS = Section("clouds", "Clouds", "Clouds", lambda report: {"lead": "They are white.", "tables": []})
RAIN = Section("rain", "Rain", "Rain below", lambda report: 1 / 0)
"""
POINTS = """
[rankscope.causes]
nap = their_causes:CAUSE
broken = their_causes:BROKEN
taken = their_causes:TAKEN
gone = their_nothing:CAUSE
wrong = their_causes:claim

[rankscope.rules]
cloudy = their_rules:RULE

[rankscope.sections]
clouds = their_sections:CLOUDS
rain = their_sections:RAIN
"""
ASK = """
import json, sys
from pathlib import Path
from rankscope.analysis.pipeline import analyze
from rankscope.report import WRITERS
from rankscope.trace.files.load import load_traces
report = analyze(load_traces([Path(sys.argv[1])], workers=1, cache=False), hta=False)
page = WRITERS["html"](report)
said = {
    "cause": report.verdict.cause,
    "next": report.verdict.next,
    "notes": report.run.notes,
    "errors": [e.message for e in report.errors],
    "cloudy": [f.advice for f in report.findings if f.kind == "cloudy"],
    "clouds": "They are white." in page,
    "rain": "This section could not be made. ZeroDivisionError" in page,
}
sys.stdout.write(json.dumps(said))
"""


@pytest.mark.process
def test_theirs_count_and_broken_ones_are_notes(tmp_path: Path) -> None:
    for name, text in (("causes", CAUSES), ("rules", RULES), ("sections", SECTIONS)):
        (tmp_path / f"their_{name}.py").write_text(text, encoding="utf-8")
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    traces = Path(__file__).parents[1] / "data" / "traces" / "ddp_dataloader_stall"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{ASK}", traces],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert said["cause"] == "nap"  # theirs is asked before ours, which claims the same time
    assert said["next"][0].startswith("Look for garbage collection")  # the words of the cause that it was copied from
    assert said["errors"] == []
    assert said["cloudy"] == [["Wait."]]
    assert (said["clouds"], said["rain"]) == (True, True)
    about = [note for note in said["notes"] if "plug-in" in note]
    assert sorted(about) == [
        "the plug-in broken (rankscope.causes) failed and is left out: RuntimeError: no luck",
        (
            "the plug-in gone of their-package (rankscope.causes) is left out: ModuleNotFoundError: "
            "No module named 'their_nothing'"
        ),
        "the plug-in taken of their-package (rankscope.causes) is left out: ValueError: the name input_stall is taken",
        "the plug-in wrong of their-package (rankscope.causes) is left out: TypeError: it is a function, not a Cause",
    ]


def test_without_plugins_nothing_is_reported() -> None:
    assert plugins.load("kind_that_no_package_adds_to", str, frozenset(), "name") == ()
    assert not [note for note in plugins.notes() if "kind_that_no_package" in note]


@pytest.mark.parametrize("times", [1, 3])
def test_a_failure_is_noted_once(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(plugins, "_NOTES", [])
    for _ in range(times):
        plugins.failed("causes", "x", ValueError("y"))
    assert plugins.notes() == ["the plug-in x (rankscope.causes) failed and is left out: ValueError: y"]
