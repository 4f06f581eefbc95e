"""``rankscope.attach`` says why it does not record, and stops no job."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest

import rankscope
from rankscope.agent import attach
from rankscope.rundir.spool import Spool


@pytest.fixture
def unattached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which no agent was begun, and whose runs cannot be."""

    def fails(*_: object) -> None:
        raise RuntimeError("no such\nfolder")

    for name in ("rankscope.agent.session", "rankscope.agent.bootstrap"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delenv("RANKSCOPE_DISABLE", raising=False)
    monkeypatch.setattr(attach, "_attach", fails)
    monkeypatch.setattr(attach, "_closed", False)


@pytest.mark.usefixtures("unattached")
def test_it_warns_at_the_line_of_the_script() -> None:
    with pytest.warns(RuntimeWarning, match="does not record: no such folder") as found:
        assert not rankscope.attach().recording
    assert found[0].filename == __file__


@pytest.mark.usefixtures("unattached")
def test_a_warning_that_would_be_an_error_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not rankscope.attach().recording
    assert capsys.readouterr().err == "rankscope does not record: no such folder\n"


@pytest.mark.usefixtures("unattached")
def test_a_second_recording_of_a_process_is_refused_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a process that another door records: there is nothing to say
    monkeypatch.setitem(sys.modules, "rankscope.agent.bootstrap", sys)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not rankscope.attach().recording
        # GIVEN one that has attached itself
        handle = attach.Attached("run", Spool(tmp_path))
        Spool(tmp_path).joined(os.getpid()).touch()
        assert not rankscope.attach().recording
    # WHEN it has ended that, and begins anew
    handle.close()
    with pytest.warns(RuntimeWarning, match="has been recorded, which is possible once"):
        assert not rankscope.attach().recording
