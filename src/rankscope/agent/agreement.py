"""All ranks open a window at the same step: agreed through the store of torchrun's own agent, never by a barrier.

Rank 0 announces the step some steps ahead; the others read it. All traffic happens in a thread of its own, so that
a slow or dead store costs the training thread nothing. Without an answer a rank opens where its plan says, which is
the same step for all ranks that count alike, and says that it was not confirmed.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, TCPStore

__all__ = ["Agreement"]

_PATIENCE = timedelta(seconds=5)
_POLL_S = 0.05


class Agreement:
    """Announce and learn at which step each window opens."""

    def __init__(self, run_id: str, attempt: int, leader: bool, environ: Mapping[str, str] = os.environ) -> None:
        self._prefix = f"rankscope/{run_id}/{attempt}"
        self._leader = leader
        self._address = (environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", ""))
        # Only torchelastic's own store may be used before init_process_group: elsewhere rank 0 of the user opens it.
        self._possible = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and all(self._address)
        self._wanted: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._answers: dict[int, int] = {}
        self._thread: threading.Thread | None = None

    def ask(self, window: int, planned: int) -> None:
        """Announce (leader) or begin to look for (others) the first step of a window. Returns at once."""
        if not self._possible:
            return
        self._wanted.put((window, planned))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="rankscope-agreement", daemon=True)
            self._thread.start()

    def answer(self, window: int) -> int | None:
        """The agreed first step, or None when it is not known (yet)."""
        return self._answers.get(window)

    def _serve(self) -> None:
        try:
            host, port = self._address
            store = PrefixStore(self._prefix, TCPStore(host, int(port), is_master=False, timeout=_PATIENCE))
            pause = threading.Event()
            while True:
                window, planned = self._wanted.get()
                key = f"window_{window}"
                if self._leader:
                    store.set(key, str(planned))
                while not store.check([key]):
                    pause.wait(_POLL_S)
                self._answers[window] = int(store.get(key))
        except Exception:  # no store, no confirmation; the record says so
            self._possible = False
