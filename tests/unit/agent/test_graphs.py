"""Effects of the script's CUDA graphs on a window. Counting of replays is in test_steps.py."""

from __future__ import annotations

from rankscope.agent import session as sessions
from rankscope.agent.session import Session
from rankscope.config import ToolConfig, to_agent_spec


def test_the_first_graph_waits_until_the_window_before_it_has_let_go_of_cupti(tmp_path, monkeypatch):
    spec = to_agent_spec(ToolConfig(), run_id="r", spool=tmp_path)
    ours = Session(spec, {"RANK": "0", "WORLD_SIZE": "1"})
    monkeypatch.setattr(sessions, "_session", ours)
    waited = []
    monkeypatch.setattr(ours._windows._teardown, "finish", lambda: waited.append(1))
    ours._thread.claim()
    ours._graph_begins()
    ours._graph_begins()
    assert waited == [1]
