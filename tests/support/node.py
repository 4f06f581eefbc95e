"""A node without torch: a spool with a task, the real helper process, and ranks represented by their files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankscope.config import ToolConfig, to_agent_spec
from rankscope.launcher.node_helper import NodeHelper
from rankscope.node.manifest import NodeResult
from rankscope.records.codec import from_json, to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import RankRecord
from rankscope.records.running.node_task import HelperMessage, JobEnd, NodeTask
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool
from support.ending import end

TRACE = '{"traceEvents": []}'


def until(what: Callable[[], Any], limit_s: float = 300) -> Any:
    """Return the first true value of ``what()``. The limit is for failing tests, and measures nothing."""
    deadline = time.monotonic() + limit_s
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
    return value


class Node:
    """One node of a run, with a real helper process."""

    def __init__(self, folder: Path, run: RunDir, **task: Any) -> None:
        self.run = run
        self.spool = Spool(folder)
        folder.mkdir(mode=0o700)
        self.spool.spec.write_text(to_json(to_agent_spec(ToolConfig(), run_id="test", spool=folder)))
        fields: dict[str, Any] = {
            "run_id": None, "launch": "launch 1", "alone": True, "run_dir": str(run.path), "base": str(folder),
            "node": None, "launcher_pid": os.getpid(), "argv": ["rankscope", "run"], "config": {},
            "gather_timeout_s": 20.0, "report": False, "hta": False, "report_timeout_s": 60.0,
        }  # fmt: skip
        self.task = NodeTask(**{**fields, **task})
        self.spool.task.write_text(to_json(self.task))
        self.helper: NodeHelper | None = None

    def start(self, *, kept: bool = False) -> Node:
        """Start the helper and wait until it has claimed the run directory."""
        self.helper = NodeHelper(self.spool, kept=kept)
        word = self.helper.claimed(300, 300)
        assert word is not None
        assert word.kind == "claimed", word
        return self

    def record(self, rank: int, *, world: int = 2, **fields: Any) -> RankRecord:
        """Return the record of a rank: of a window, or of its process if ``window`` is not given."""
        known: dict[str, Any] = {"host": os.uname().nodename, "pid": os.getpid(), "attempt": 0, "local_rank": rank}
        return RankRecord(rank=rank, world_size=world, **{**known, **fields})

    def lives(self, rank: int, **fields: Any) -> None:
        """Write the process record of a rank that has ended normally."""
        life = self.record(rank, **fields)
        self.spool.process_record(life.attempt, rank).write_text(to_json(life))

    def records(self, rank: int, text: str = TRACE, *, window: int = 0, **fields: Any) -> None:
        """Write the files of a rank that has recorded a window: the trace, and then the record that announces it."""
        trace = self.spool.trace(0, window, rank)
        trace.write_text(text)
        record = self.record(rank, window=window, trace=trace.name, **fields)
        path = self.spool.record(0, window, rank)
        path.with_suffix(".tmp").write_text(to_json(record))
        path.with_suffix(".tmp").rename(path)

    def announces(self, ranks: Sequence[int], texts: Sequence[str], **fields: Any) -> None:
        """Ranks have come, have recorded a window, and have ended; ``texts`` are the traces of all ranks of the job."""
        for rank in ranks:
            self.lives(rank, world=len(texts))
        for rank in ranks:
            self.records(rank, texts[rank], world=len(texts), **fields)

    def end(self, exit_code: int | None = 0, limit_s: float = 300) -> list[HelperMessage]:
        """Tell the helper that the job has ended; return all its messages."""
        assert self.helper is not None
        self.helper.finish(JobEnd(exit_code=exit_code))
        return self.hear(limit_s)

    def hear(self, limit_s: float = 300) -> list[HelperMessage]:
        """Return all messages until the helper is done."""
        assert self.helper is not None
        words: list[HelperMessage] = []
        deadline = time.monotonic() + limit_s
        while not words or words[-1].kind != "done":
            assert time.monotonic() < deadline, words
            if (word := self.helper.next_message(0.2)) is not None:
                words.append(word)
        return words

    def kill(self) -> None:
        """Kill the helper, as the kernel does when memory is exhausted; the next read of a message notices it."""
        assert self.helper is not None
        os.kill(self.helper.pid, signal.SIGKILL)
        self.helper._process.wait(60)

    def close(self) -> None:
        """End the helper, if it still runs, and wait for it."""
        if self.helper is not None:
            process = self.helper._process
            self.helper.end()
            end(process)

    @property
    def manifest(self) -> RunManifest:
        return from_json(RunManifest, self.run.manifest.read_bytes())

    @property
    def result(self) -> NodeResult:
        (path,) = self.run.nodes.glob("*.result.json")
        return from_json(NodeResult, path.read_bytes())
