"""Relay rank 0's window announcements to the other nodes through a TCPStore, and back their slow steps and the windows
that their scripts ask for.

One rank of each node has two threads that block in the store or poll every 0.2 s; no other thread uses the network, and
a job on one node has no relay. The relay uses no barrier and no collective, because those deadlock when ranks disagree
(vllm#51881, torchtitan#645). Without the store each rank opens windows as planned, which is the same step on all ranks
that count equally.

The number of nodes need not be known: each node takes a number from a counter in the store when it joins.

The threads end before the process does. Up to Python 3.13 a thread that tries to continue during interpreter shutdown
is unwound (PyThread_exit_thread, cpython#87135). A thread that returns from the store has C++ frames that must not be
unwound, and the process aborts: *terminate called without an active exception*.
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
from rankscope.agent.process.guard import keep_message

__all__ = ["StoreRelay"]

_PATIENCE = timedelta(seconds=5)
_LISTEN = timedelta(minutes=10)
_POLL_S = 0.2
_ENDS_WITHIN_S = 2.0
_RINGS_EVERY_S = 0.05


class StoreRelay:
    """Copies notices between this node's files and the store. Created in one process of every node.

    Args:
        post: what to carry.
        host: host of the store's server.
        port: its port.
    """

    def __init__(self, post: Post, host: str, port: int) -> None:
        self._notices = post.notices
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
        except RuntimeError as error:  # no thread can be started any more (RLIMIT_NPROC)
            keep_message(f"nodes do not hear of each other's windows: {error}")

    def stop(self) -> None:
        """Stop the threads because the process exits; threads that stay blocked in the store are abandoned after a
        moment."""
        self._over.set()
        deadline = time.monotonic() + _ENDS_WITHIN_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))

    def _quietly(self, work: Callable[[PrefixStore], None]) -> None:
        with contextlib.suppress(Exception):  # without the store no announcement arrives; the records note it
            work(PrefixStore(self._prefix, TCPStore(*self._address, is_master=False, timeout=_PATIENCE)))

    def _speak(self, store: PrefixStore) -> None:
        """Write to the store: the windows on the head node, slow steps and requests on the others."""
        window = 0
        while not self._over.is_set():
            if self._head and (text := self._notices.read(f"window_{window}")) is not None:
                # First for nodes that join later, which read this key first; then for those that have joined.
                store.set(_window(window, 0), text)
                keys = [_window(window, node) for node in range(1, store.add("nodes", 0) + 1)]
                if keys:
                    store.multi_set(keys, [text] * len(keys))  # type: ignore[attr-defined]  # its stub lacks it
                window += 1
            elif not self._head and self._notices.take("slow_step"):
                store.add("slow_steps", 1)
            elif not self._head and (text := self._notices.read("asked")) is not None and self._notices.take("asked"):
                store.set("asked", text)
                store.add("requests", 1)
            else:
                self._over.wait(_POLL_S)
        # The listening thread blocks in the store on one key; setting the key wakes it.
        while not self._head and self._threads[1].is_alive():
            if self._node:
                store.set(_window(self._heard, self._node), "")
            self._threads[1].join(_RINGS_EVERY_S)

    def _listen(self, store: PrefixStore) -> None:
        """Receive windows from the store; the server blocks the call, so nothing is polled."""
        self._node = int(store.add("nodes", 1))
        while store.check([_window(self._heard, 0)]):
            self._notices.post(f"window_{self._heard}", store.get(_window(self._heard, 0)).decode())
            self._heard += 1
        while not self._over.is_set():
            with contextlib.suppress(_DistStoreError):  # nothing within ten minutes
                key = _window(self._heard, self._node)
                store.wait([key], _LISTEN)
                if text := store.get(key).decode():
                    self._notices.post(f"window_{self._heard}", text)
                    self._heard += 1

    def _speak_for_all(self, store: PrefixStore) -> None:
        """On the head node: post for rank 0 what the other nodes have reported."""
        slow = asked = 0
        while not self._over.is_set():
            if (count := store.add("slow_steps", 0)) > slow:
                slow = count
                self._notices.post("slow_step")
            elif (count := store.add("requests", 0)) > asked:
                asked = count
                self._notices.post("asked", store.get("asked").decode())
            else:
                self._over.wait(_POLL_S)


def _window(number: int, node: int) -> str:
    """Return the key of a window for a node. Keys differ by node so that one can be woken alone; 0 is for nodes yet to
    join."""
    return f"window_{number}/{node}"
