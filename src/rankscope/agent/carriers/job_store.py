"""The TCPStore behind the job's default process group, whoever has made it.

Its own connection is not used: a client of the store serves one call at a time, and one that waits there for an
announcement would hold up the job's next ``new_group``. We open one of our own to the same server.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from rankscope.agent.carriers.base import Carrier, Post
from rankscope.agent.carriers.store_relay import StoreRelay

__all__ = ["CARRIER"]


def _server() -> tuple[str, int] | None:
    """Address of the job's TCPStore; None where it has another store, or no process group yet."""
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
    except Exception:  # a store of a kind of its own
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
