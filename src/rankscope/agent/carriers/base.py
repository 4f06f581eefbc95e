"""Definition of a carrier of announcements; every other file of this folder but the table defines one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rankscope.agent.windows.notices import Notices

__all__ = ["Carrier", "Post"]


class Post(NamedTuple):
    """Arguments of a carrier: the rank it runs in and the notices that it copies."""

    run_id: str
    attempt: int
    rank: int
    notices: Notices
    """Notices of this node. The carrier copies rank 0's announcements from here, and posts received ones here."""
    environ: Mapping[str, str]
    """The environment variables with which this process was started."""


class Carrier(NamedTuple):
    """One way between nodes. It uses the network or a disk in threads or processes of its own, never in the training
    thread, and no barrier or collective, because those deadlock when ranks disagree (vllm#51881, torchtitan#645)."""

    name: str
    phrase: str
    """Completes the sentence "Announcements travel ..."."""
    heard_within_s: float
    """Time after which an announcement has reached every rank, in seconds."""
    possible: Callable[[Post], bool]
    """Whether this job can use it. Called in the training thread after its first step; every rank gets the same
    answer."""
    start: Callable[[Post], None]
    """Start carrying. Called in one process per node: rank 0, and on other nodes the first."""
