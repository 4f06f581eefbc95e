"""Exit of the launcher process for each way in which torchrun ends."""

from __future__ import annotations

import signal
from argparse import Namespace

import pytest
from torch.distributed.elastic.multiprocessing.api import SignalException

from rankscope.launcher.ending import Ending
from rankscope.launcher.run import torchrun as elastic
from rankscope.launcher.run.torchrun import run_torchrun


@pytest.fixture(autouse=True)
def no_fault_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's ``record`` switches it on for the process; pytest has its own."""
    monkeypatch.setattr("faulthandler.enable", lambda **_: None)


@pytest.mark.parametrize(
    ("raised", "ending"),
    [
        (None, Ending(0)),
        (ValueError("nnodes"), Ending(1)),
        (SignalException("stop", signal.SIGTERM), Ending(1, signal=signal.SIGTERM)),
        (KeyboardInterrupt(), Ending(130, signal=signal.SIGINT, by_signal=True)),
        (SystemExit(), Ending(0)),
        (SystemExit(3), Ending(3)),
        (SystemExit("told"), Ending(1)),
    ],
    ids=repr,
)
def test_ends_as_torchrun_would(
    raised: BaseException | None, ending: Ending, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: Namespace) -> None:
        if raised is not None:
            raise raised

    monkeypatch.setattr(elastic, "run", run)
    assert run_torchrun(Namespace()) == ending
    shown = capsys.readouterr().err
    if raised is None or isinstance(raised, SystemExit):
        assert "Traceback" not in shown
    else:
        assert type(raised).__name__ in shown


def test_shows_torchs_frames_and_not_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: Namespace) -> None:
        raise ValueError("from torchrun")

    monkeypatch.setattr(elastic, "run", run)
    run_torchrun(Namespace())
    shown = capsys.readouterr().err
    assert shown.splitlines()[0].endswith("Traceback (most recent call last):")  # torch 2.6 puts a rank before it
    assert "ValueError: from torchrun" in shown
    assert "launcher/run/torchrun.py" not in shown


def test_leaves_the_process_alone_unless_torchrun_would_die_of_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("os.kill", lambda _pid, number: killed.append(number))
    before = signal.getsignal(signal.SIGINT)
    try:
        Ending(1, signal=signal.SIGTERM).leave()
        assert killed == []
        Ending(130, signal=signal.SIGINT, by_signal=True).leave()
        assert killed == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)
