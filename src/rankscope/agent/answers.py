"""Answer from a rank that makes no progress: the stacks of its threads and the collectives that it has called.

The training thread cannot answer, since it is blocked. From the first step on, a thread of rankscope therefore blocks
in a read of a named pipe. It costs nothing until a question arrives: it does not wake up and never takes the GIL. The
thread is unknown to ``threading``, so that a script that joins all threads does not wait for it, and it does not exist
in forked children. No signal is used, because signals belong to the script. In a process that has only one thread no
second one is started, because Python 3.12 and later warn when a process with several threads forks.

An answer holds the GIL for some milliseconds, and for another 20 us per entry of torch's flight recorder. It is
requested when no rank of the node has completed a step for a long time, or by the user.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankscope.agent.backends.call_notes import recorded_calls, recorded_groups
from rankscope.agent.open_calls import add_from_stack, settle_messages
from rankscope.agent.process.descriptors import file_of
from rankscope.records.codec import to_json
from rankscope.records.running.hang import Call, RankAnswer, ThreadStack
from rankscope.rundir.files import replace_text

__all__ = ["Listener"]

_MOST_CALLS = 64
"""Per process group, of collectives and of messages; the last calls are kept."""
_MOST_FRAMES = 60
"""Per thread; the innermost frames are kept."""
_MOST_THREADS = 64
_QUESTION_BYTES = 512
_ENDS_WITHIN_S = 1.0
"""How long the exit of the process waits for an answer in progress, which takes some milliseconds."""


class Listener:
    """Answers questions that arrive in a named pipe, from a thread of its own.

    Args:
        question: the pipe, which is created here; each line ends in a number, which the answer repeats.
        answer: the file that the answer is written to.
        about: returns what the agent knows: an answer to be completed, and the identifier of the training thread.
    """

    def __init__(self, question: Path, answer: Path, about: Callable[[], tuple[RankAnswer, int | None]]) -> None:
        self.question, self._answer, self._about = question, answer, about
        self._answering = threading.Lock()

    def begin(self) -> bool:
        """Create the pipe and start the thread; return whether questions will be answered. Raises nothing."""
        try:
            if len(list(Path("/proc/self/task").iterdir())) < 2:
                return False
            os.mkfifo(self.question, 0o600)
            # Opened for reading and writing, so that a read never returns end-of-file. Child programs do not inherit
            # it.
            pipe = os.open(self.question, os.O_RDWR | os.O_CLOEXEC)
            _thread.start_new_thread(self._serve, (pipe, file_of(pipe)))
        except (OSError, RuntimeError):
            return False
        return True

    def close(self) -> None:
        """Wait for an answer in progress, and prevent further ones, because the process is about to exit.

        A thread that runs code of torch while Python finalises could make the process fail.
        """
        self._answering.acquire(timeout=_ENDS_WITHIN_S)  # never released

    def _serve(self, pipe: int, own: tuple[int, int]) -> None:
        with contextlib.suppress(BaseException):  # no error leaves this thread
            pid = os.getpid()
            while file_of(pipe) == own and os.getpid() == pid:
                line = os.read(pipe, _QUESTION_BYTES)
                if sys.is_finalizing() or not self._answering.acquire(blocking=False):
                    return
                try:
                    with contextlib.suppress(Exception):
                        found, trains = self._about()
                        found.token = int(line.split()[-1])
                        _complete(found, trains)
                        replace_text(self._answer, to_json(found, indent=None))
                finally:
                    self._answering.release()


def _complete(found: RankAnswer, trains: int | None) -> None:
    found.time_ns = time.time_ns()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    frames = [(ident, frame) for ident, frame in sys._current_frames().items() if ident != own]  # noqa: SLF001
    frames.sort(key=lambda pair: pair[0] != trains)
    for ident, frame in frames[:_MOST_THREADS]:
        stack = ThreadStack(name=names.get(ident, str(ident))[:80], training=ident == trains, frames=_lines(frame))
        found.stacks.append(stack)
    found.groups = recorded_groups()
    entries = recorded_calls()
    found.recorder = entries is not None
    found.calls = _last(entries or [], found.groups)
    add_from_stack(found.calls, next((frame for ident, frame in frames if ident == trains), None), found.groups)


def _lines(frame: Any) -> list[str]:
    lines: list[str] = []
    while frame is not None and len(lines) < _MOST_FRAMES:
        lines.append(f"{frame.f_code.co_filename[-200:]}:{frame.f_lineno} in {frame.f_code.co_name[:80]}")
        frame = frame.f_back
    return lines[::-1]


def _last(entries: list[Any], groups: dict[str, list[int]]) -> list[Call]:
    calls = []
    for entry in entries:
        with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):
            group = entry["process_group"]
            types = entry.get("input_dtypes") or [""]
            calls.append(
                Call(
                    group=str(group[0] if isinstance(group, (list, tuple)) else group)[:80],
                    seq=max(int(entry.get("collective_seq_id", 0)), 0),
                    name=str(entry["profiling_name"])[:80],
                    done=bool(entry.get("retired")) or entry.get("state") == "completed",
                    sizes=[[int(length) for length in shape] for shape in entry.get("input_sizes", [])[:4]],
                    dtype=str(types[0])[:20],
                    created_ns=max(int(entry["time_created_ns"]), 0),
                    message=bool(entry.get("is_p2p")),
                )
            )
    calls.sort(key=lambda call: call.created_ns)
    settle_messages(calls, groups)
    kept: dict[tuple[str, bool], int] = {}
    found = []
    for call in reversed(calls):
        kind = call.group, call.message
        kept[kind] = kept.get(kind, 0) + 1
        if kept[kind] <= _MOST_CALLS:
            found.append(call)
    return found[::-1]
