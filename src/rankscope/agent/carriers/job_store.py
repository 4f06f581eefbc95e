"""The TCPStore of the job's default process group, whatever created it.

Its own connection is not used: a client of the store handles one call at a time, so waiting there for an announcement
would block the job's next ``new_group``. The relay opens its own connection to the same server.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from rankscope.agent.carriers.base import Carrier, Post
from rankscope.agent.carriers.store_relay import StoreRelay

__all__ = ["CARRIER"]


def _server() -> tuple[str, int] | None:
    """Return the address of the job's TCPStore; None if it has another kind of store, or no process group yet."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    store: Any = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - no public name
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if not isinstance(store, TCPStore):
        return None
    return str(store.host), int(store.port)


def _possible(_post: Post) -> bool:
    try:
        return _server() is not None
    except Exception:  # an unknown kind of store
        return False


def _start(post: Post) -> None:
    server = _server()
    if server is not None:
        StoreRelay(post, *server).start()


CARRIER = Carrier(
    name="job_store",
    phrase="through the store of the job's process group",
    heard_within_s=1.0,
    possible=_possible,
    start=_start,
)
