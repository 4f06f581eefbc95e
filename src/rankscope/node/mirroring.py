"""Run directories in a store: this node's part is in its spool, and a separate process copies it to the store."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Any

from rankscope import own_process
from rankscope.errors import RunDirError
from rankscope.records.running.live import NodeLive
from rankscope.records.running.node_task import NodeTask
from rankscope.rundir.claim import NodeClaim, claim
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["Mirroring", "mirroring_of"]

# Named, not imported: libraries of stores are large and may hang.
_MODULE = "rankscope.stores.process"
_OF_ALL = r"nodes/|run\.json|kept\.json|stuck/"
"""Files that all nodes need."""
_OF_THE_JOB = r"live/|attempt_\d+/"
_PAUSE_S = 30.0
"""Between two attempts while the job runs, because each verification costs a request per file."""


class Mirroring:
    """Sends requests to the process, and starts it when needed. Does nothing if the run directory is a folder.

    Args:
        folder: this node's part of the run directory.
        url: of the run directory; empty: it is a folder.
        limit_s: for an answer, or for a sign that files move, on a slow link.
    """

    def __init__(self, folder: Path, url: str, limit_s: float) -> None:
        self._folder, self.url, self._limit_s = folder, url, limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""
        self._next = 0.0
        self._attempt = -1
        self.left = ""
        """Why some files are not in the store."""

    def claims(self, run_id: str, node: str | None, *, patient: bool, **place: Any) -> NodeClaim:
        """Claim this node's place, as :func:`rankscope.rundir.claim.claim` does in a folder.

        Args:
            run_id: name of the run.
            node: its number, if it has one.
            patient: repeat the request while the store does not answer, as a hanging disk is waited for.
            place: the other arguments of that function.

        Raises:
            RunDirError: the store holds another or a finished run, or this place is taken there.
            OSError: the store does not answer.
        """
        run_dir = RunDir(self._folder)
        for _ in range(3):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._answer(patient, do="pull", wanted=_OF_ALL)
            try:
                granted = claim(run_dir, run_id, node, **place)
            except RunDirError as error:
                raise RunDirError(str(error).replace(str(self._folder), self.url)) from error
            names = [run_dir.node_claim(granted.node), run_dir.launch]
            if all(self._answer(patient, do="claim", name=p.relative_to(self._folder).as_posix()) for p in names):
                return granted
            for path in names:  # another node was faster: read its claim
                path.unlink()
        raise RunDirError(f"{self.url}: this node's place is taken again and again; choose another run.dir")

    def state_of_others(self) -> list[str]:
        """Copy the state that other nodes have pushed while the job runs, if the store answers.

        Returns:
            The names of all files of recorded attempts and of such states in the store.
        """
        try:
            self._ask(do="pull", wanted="live/")
            return list(self._ask(do="names", wanted=_OF_THE_JOB))
        except OSError:  # the claim has succeeded, and this is no reason to give it up
            return []

    def push_new_attempt(self, live: NodeLive) -> None:
        """Copy new files once an attempt has made steps, because a node that joins has to know of it. Never raises."""
        if live.attempt > self._attempt and any(rank.steps > 0 for rank in live.ranks):
            self._attempt, self._next = live.attempt, 0.0
            self.push()

    def push(self, *, last: bool = False) -> bool:
        """Copy new files to the store; while the job runs, not more often than allowed. Never raises.

        Returns:
            Whether all files are there.
        """
        if not self.url:
            return True
        if not last and time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _PAUSE_S
        try:
            self._ask(do="push")
            self.left = ""
        except OSError as error:
            self.left = f"{self.url}: {error}"
        if not last:
            self.end()
        return not self.left

    def pull(self, wanted: str = _OF_ALL) -> None:
        """Copy the files of other nodes to this one. Never raises; see :attr:`left`."""
        if not self.url:
            return
        try:
            self._ask(do="pull", wanted=wanted)
        except OSError as error:
            self.left = f"{self.url}: {error}"

    def pause(self, seconds: float) -> None:
        """Sleep if the run directory is a shared folder; else copy new files from and to the store."""
        time.sleep(seconds)
        self.push(last=True)
        self.pull()

    def close(self) -> None:
        """Remove this node's part, which is in the store now."""
        if not self.url:
            return
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self, patient: bool, **question: Any) -> Any:
        while patient:
            with contextlib.suppress(TimeoutError):
                return self._ask(**question)
        return self._ask(**question)

    def _ask(self, **question: Any) -> Any:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                own_process.command(_MODULE, str(self._folder), self.url), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, env=own_process.environment(), start_new_session=True,
            )  # fmt: skip
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(question).encode() + b"\n")
            stdin.flush()
            said = {"moved": True}
            while "moved" in said:
                said = json.loads(self._line(stdout))
        except OSError:
            self.end()
            raise
        if "error" in said:
            raise OSError(said["error"])
        return said["done"]

    def _line(self, stdout: IO[bytes]) -> bytes:
        """Return the next line of the process."""
        deadline = time.monotonic() + self._limit_s
        while b"\n" not in self._read:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no answer within {self._limit_s:g} s")
            part = os.read(stdout.fileno(), 1 << 16)
            if not part:
                raise OSError("the process that speaks with the store has ended")
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        return line

    def end(self) -> None:
        """End the process; the next request starts another."""
        process, self._process, self._read = self._process, None, b""
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def mirroring_of(spool: Spool, task: NodeTask, *, elsewhere: bool = False) -> Mirroring:
    """Return what copies a node's run directory to its store, unless a folder is used instead."""
    return Mirroring(spool.part, "" if elsewhere else task.store or "", task.gather_timeout_s)
