"""What CUDA graphs of the script change for a window. How their replays are counted: test_steps.py."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rankscope.agent import session as sessions
from rankscope.agent.backends.kineto import KinetoCapture
from rankscope.agent.session import Session
from rankscope.config import CaptureConfig, ToolConfig, to_agent_spec
from rankscope.records.spec import Window


class Link:
    """Stands for an understanding with libkineto, which is done with its last window."""

    def __init__(self) -> None:
        self.asked_to_rest = 0

    def rest(self, within_s: float) -> bool:
        self.asked_to_rest += 1
        return True


@pytest.fixture
def session(tmp_path: Path, monkeypatch):
    def session(backend: str) -> Session:
        config = ToolConfig(capture=CaptureConfig(backend=backend))
        made = Session(to_agent_spec(config, run_id="r", spool=tmp_path), {"RANK": "0", "WORLD_SIZE": "1"}, armed=False)
        made._link = Link()
        monkeypatch.setattr(sessions, "_session", made)
        return made

    return session


@pytest.mark.parametrize("backend", ["auto", "kineto"])
def test_libkineto_records_beside_graphs(session, backend):
    ours = session(backend)
    ours._graph_begins()
    window = Window(number=0, warm=3, first=4, last=5, backend="kineto")
    assert isinstance(ours._makers(window, ours.spec.capture)[0](), KinetoCapture)


def test_the_first_graph_waits_for_the_window_before_it(session):
    ours = session("kineto")
    ours._thread = threading.get_ident()
    ours._graph_begins()
    ours._graph_begins()
    assert ours._link.asked_to_rest == 1
