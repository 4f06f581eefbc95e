"""The process that makes the report of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rankscope import report
from rankscope.launcher.report_process import make
from rankscope.records.running.node_task import HelperMessage
from rankscope.rundir.layout import RunDir

RUN = Path(__file__).parents[2] / "data" / "runs" / "ddp_input"


@pytest.mark.data
def test_a_report_that_cannot_be_written_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "write_report", full)
    run = RunDir(tmp_path / "run")
    shutil.copytree(RUN, run.path)
    told: list[HelperMessage] = []
    make(run, str(run.path), hta=False, tell=told.append)
    assert [(message.kind, message.placed) for message in told[-2:]] == [("report", False), ("lacking", True)]
    assert "No space left on device; `rankscope analyze" in told[-1].text
