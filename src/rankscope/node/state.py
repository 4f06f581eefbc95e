"""State that a helper leaves for its successor: its process id, its notes, and its node's claim."""

from __future__ import annotations

import contextlib
import os
import threading

from rankscope.records.codec import from_json, to_json
from rankscope.records.running.node_task import HelperState
from rankscope.records.secrets import mask_text
from rankscope.rundir.claim import NodeClaim
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["NodeState"]

_MOST_NOTES = 50


class NodeState:
    """Notes and claim of a node. Any thread may use it. On a full disk only what the next helper would read is lost.

    Args:
        spool: of this node, to which a line for this process is added.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._lock = threading.Lock()
        self._earlier: list[int] = []
        self._notes: list[str] = []
        with contextlib.suppress(OSError):
            for line in spool.helper_state.read_bytes().splitlines():
                with contextlib.suppress(ValueError):  # a helper died while writing it
                    state = from_json(HelperState, line)
                    self._notes += state.notes
                    if state.pid not in self._earlier:
                        self._earlier.append(state.pid)
        self._write([])

    def earlier(self) -> list[int]:
        """Return the process ids of earlier helpers of this node."""
        return list(self._earlier)

    def note(self, text: str) -> None:
        """Keep a note for run.json; repeated notes are kept once."""
        text = mask_text(" ".join(text.split()))
        with self._lock:
            if text in self._notes or len(self._notes) > _MOST_NOTES:
                return
            if len(self._notes) == _MOST_NOTES:
                text = "there is more to be told of this node than fits here"
            self._notes.append(text)
            self._write([text])

    def notes(self) -> list[str]:
        """Return all notes of this node's helpers so far."""
        with self._lock:
            return list(self._notes)

    def claims(self, granted: NodeClaim) -> None:
        """Keep the claim that was granted."""
        with contextlib.suppress(OSError):  # the next helper finds it in the run directory, by the path of the spool
            replace_text(self._spool.claimed, to_json(granted))

    def claimed(self) -> NodeClaim | None:
        """Return the claim of an earlier helper of this node."""
        with contextlib.suppress(OSError, ValueError):
            return from_json(NodeClaim, self._spool.claimed.read_bytes())
        return None

    def _write(self, notes: list[str]) -> None:
        with contextlib.suppress(OSError), self._spool.helper_state.open("a", encoding="utf-8") as stream:
            stream.write(to_json(HelperState(pid=os.getpid(), notes=notes), indent=None) + "\n")
