"""Between nodes: rank 0's announcements outwards, readiness and slow steps inwards, through torchrun's own store.

One rank of each node has two threads that wait in the store or look up every 0.2 s; nobody else touches the network,
and a job on one node has no courier at all. Never a barrier or a collective: those deadlock when ranks disagree
(vllm#51881, torchtitan#645). Without the store each rank opens where its plan says, which is the same step for all that
count alike.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

from torch._C import _DistStoreError
from torch._C._distributed_c10d import PrefixStore, TCPStore

from rankscope.agent.board import Board

__all__ = ["Courier", "job_has_store"]

_PATIENCE = timedelta(seconds=5)
_LISTEN = timedelta(minutes=10)
_POLL_S = 0.2


def job_has_store(environ: Mapping[str, str]) -> bool:
    """Only torchelastic's own store may be used before init_process_group: elsewhere rank 0 of the user opens it."""
    return environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and "MASTER_PORT" in environ


class Courier:
    """Carries notices between this node's board and the store. Made by local rank 0 of every node."""

    def __init__(self, run_id: str, attempt: int, board: Board, environ: Mapping[str, str]) -> None:
        self._board = board
        self._head = environ.get("RANK") == "0"
        self._local_world = int(environ.get("LOCAL_WORLD_SIZE", "1"))
        self._world = int(environ.get("WORLD_SIZE", "1"))
        self._address = (environ["MASTER_ADDR"], int(environ["MASTER_PORT"]))
        self._prefix = f"rankscope/{run_id}/{attempt}"

    def start(self) -> None:
        """Begin to carry; the threads end with the process."""
        for work in (self._speak, self._speak_for_all) if self._head else (self._speak, self._listen):
            threading.Thread(target=self._quietly, args=(work,), name=f"rankscope{work.__name__}", daemon=True).start()

    def _quietly(self, work: Callable[[PrefixStore], None]) -> None:
        with contextlib.suppress(Exception):  # no store, no announcement; the records say so
            work(PrefixStore(self._prefix, TCPStore(*self._address, is_master=False, timeout=_PATIENCE)))

    def _speak(self, store: PrefixStore) -> None:
        """This node's readiness and slow steps go to the store; on the head node the windows too."""
        pause, ready, window = threading.Event(), 0, 0
        while True:
            if self._board.stands(f"window_{ready}"):
                ready += 1  # announced, ready or not
            elif self._board.count_ready(ready, self._local_world) == self._local_world:
                store.add(f"ready_{ready}", self._local_world)
                ready += 1
            elif self._head and (text := self._board.read(f"window_{window}")) is not None:
                store.set(f"window_{window}", text)
                window += 1
            elif not self._head and self._board.take("slow_step"):
                store.add("slow_steps", 1)
            else:
                pause.wait(_POLL_S)

    def _listen(self, store: PrefixStore) -> None:
        """Windows come from the store; the wait is the server's, nothing is polled."""
        window = 0
        while True:
            with contextlib.suppress(_DistStoreError):  # nothing in ten minutes
                store.wait([f"window_{window}"], _LISTEN)
                self._board.post(f"window_{window}", store.get(f"window_{window}").decode())
                window += 1

    def _speak_for_all(self, store: PrefixStore) -> None:
        """On the head node: what all nodes have said, put up for rank 0."""
        pause, ready, slow = threading.Event(), 0, 0
        while True:
            if self._board.stands(f"window_{ready}"):
                ready += 1
            elif store.add(f"ready_{ready}", 0) == self._world:
                self._board.post(f"all_ready_{ready}")
                ready += 1
            elif (count := store.add("slow_steps", 0)) > slow:
                slow = count
                self._board.post("slow_step")
            else:
                pause.wait(_POLL_S)
