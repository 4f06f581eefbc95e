"""The TCPStore that torchrun's agents keep for the ranks; it exists before the process group."""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.agent.carriers.base import Carrier, Post
from rankscope.agent.carriers.store_relay import StoreRelay

__all__ = ["CARRIER", "job_has_store"]

_NEEDS = {"MASTER_ADDR", "MASTER_PORT"}


def job_has_store(environ: Mapping[str, str]) -> bool:
    """Return whether the variables name torchelastic's own store. Only this one may be used before init_process_group,
    since otherwise rank 0 of the script opens the store itself."""
    return environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and environ.keys() >= _NEEDS


def _start(post: Post) -> None:
    StoreRelay(post, post.environ["MASTER_ADDR"], int(post.environ["MASTER_PORT"])).start()


CARRIER = Carrier(
    name="torchrun_store",
    phrase="through torchrun's own store",
    heard_within_s=1.0,
    possible=lambda post: job_has_store(post.environ),
    start=_start,
)
