"""Relay rank 0's window announcements to the other nodes, and their slow steps back, through a TCPStore.

One rank of each node has two threads that wait in the store or look up every 0.2 s; no other thread touches the
network, and a job on one node has no relay. The relay uses no barrier and no collective: those deadlock when ranks
disagree (vllm#51881, torchtitan#645). Without the store each rank opens where its plan says, which is the same step for
all that count alike.

Nobody has to know how many nodes there are: each takes a number in the store when it comes.

The threads end before the process does. Up to Python 3.13 a thread that wants to go on while the interpreter shuts down
is unwound (PyThread_exit_thread, cpython#87135); one that comes back from the store has C++ frames that may not be, and
the process aborts: *terminate called without an active exception*.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from torch._C import _DistStoreError
from torch._C._distributed_c10d import PrefixStore, TCPStore

from rankscope.agent.carriers.base import Post
from rankscope.agent.process.guard import tell

__all__ = ["StoreRelay"]

_PATIENCE = timedelta(seconds=5)
_LISTEN = timedelta(minutes=10)
_POLL_S = 0.2
_ENDS_WITHIN_S = 2.0
_RINGS_EVERY_S = 0.05


class StoreRelay:
    """Copies notices between this node's files and the store. Made in one process of every node.

    Args:
        post: what is to be carried.
        host: of the store's server.
        port: of it.
    """

    def __init__(self, post: Post, host: str, port: int) -> None:
        self._board = post.board
        self._head = post.rank == 0
        self._node = 0
        self._address = (host, port)
        self._prefix = f"rankscope/{post.run_id}/{post.attempt}"
        self._heard = 0
        self._over = threading.Event()
        works = (self._speak, self._speak_for_all) if self._head else (self._speak, self._listen)
        self._threads = [
            threading.Thread(target=self._quietly, args=(work,), name=f"rankscope{work.__name__}", daemon=True)
            for work in works
        ]

    def start(self) -> None:
        """Start the threads."""
        atexit.register(self.stop)
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:  # no process may be started any more (RLIMIT_NPROC)
            tell(f"nodes do not hear of each other's windows: {error}")

    def stop(self) -> None:
        """The process ends; threads that the store blocks for longer than some moments are abandoned."""
        self._over.set()
        deadline = time.monotonic() + _ENDS_WITHIN_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))

    def _quietly(self, work: Callable[[PrefixStore], None]) -> None:
        with contextlib.suppress(Exception):  # no store, no announcement; the records say so
            work(PrefixStore(self._prefix, TCPStore(*self._address, is_master=False, timeout=_PATIENCE)))

    def _speak(self, store: PrefixStore) -> None:
        """On the head node the windows go to the store, on the others their slow steps."""
        window = 0
        while not self._over.is_set():
            if self._head and (text := self._board.read(f"window_{window}")) is not None:
                # For those that come later, and read it first; then for all that have come.
                store.set(_window(window, 0), text)
                keys = [_window(window, node) for node in range(1, store.add("nodes", 0) + 1)]
                if keys:
                    store.multi_set(keys, [text] * len(keys))  # type: ignore[attr-defined]  # its stub lacks it
                window += 1
            elif not self._head and self._board.take("slow_step"):
                store.add("slow_steps", 1)
            else:
                self._over.wait(_POLL_S)
        # A waiting thread waits in the store for one key, which wakes it.
        while not self._head and self._threads[1].is_alive():
            if self._node:
                store.set(_window(self._heard, self._node), "")
            self._threads[1].join(_RINGS_EVERY_S)

    def _listen(self, store: PrefixStore) -> None:
        """Windows come from the store; the wait is the server's, nothing is polled."""
        self._node = int(store.add("nodes", 1))
        while store.check([_window(self._heard, 0)]):
            self._board.post(f"window_{self._heard}", store.get(_window(self._heard, 0)).decode())
            self._heard += 1
        while not self._over.is_set():
            with contextlib.suppress(_DistStoreError):  # nothing in ten minutes
                key = _window(self._heard, self._node)
                store.wait([key], _LISTEN)
                if text := store.get(key).decode():
                    self._board.post(f"window_{self._heard}", text)
                    self._heard += 1

    def _speak_for_all(self, store: PrefixStore) -> None:
        """On the head node: post for rank 0 what all nodes have reported."""
        slow = 0
        while not self._over.is_set():
            if (count := store.add("slow_steps", 0)) > slow:
                slow = count
                self._board.post("slow_step")
            else:
                self._over.wait(_POLL_S)


def _window(number: int, node: int) -> str:
    """Each node has a key of its own, so that one can be woken without the others; 0 is for those yet to come."""
    return f"window_{number}/{node}"
