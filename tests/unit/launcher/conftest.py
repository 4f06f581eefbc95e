"""A substitute for the node helper that starts no process."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.records.codec import from_json
from rankscope.records.running.node_task import HelperMessage, JobEnd, NodeTask
from rankscope.rundir.spool import Spool


class FakeHelper:
    """Stands for ``rankscope.launcher.node_helper.NodeHelper``; tells what it was asked."""

    def __init__(self) -> None:
        self.pid = 1
        self.spool: Spool | None = None
        self.task: NodeTask | None = None
        self.answer: HelperMessage | None = HelperMessage(kind="claimed", text="/runs/run_0001")
        self.words = [HelperMessage(kind="gathered"), HelperMessage(kind="manifest"), HelperMessage(kind="done")]
        self.finished: JobEnd | None = None
        self.ended = False
        self.start_error: Exception | None = None
        self.finish_error: BaseException | None = None

    def __call__(self, spool: Spool, *, kept: bool = False) -> FakeHelper:
        if self.start_error is not None:
            raise self.start_error
        self.spool, self.task = spool, from_json(NodeTask, spool.task.read_bytes())
        return self

    def claimed(self, patience_s: float, store_s: float) -> HelperMessage | None:
        return self.answer

    def watch(self) -> None:
        pass

    def finish(self, end: JobEnd) -> None:
        self.finished = end
        if self.finish_error is not None:
            raise self.finish_error

    def next_message(self, patience_s: float) -> HelperMessage | None:
        return self.words.pop(0)

    def end(self) -> None:
        self.ended = True


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHelper:
    fake = FakeHelper()
    monkeypatch.setattr("rankscope.launcher.node_helper.NodeHelper", fake)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    return fake
