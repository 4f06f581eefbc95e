"""What a carrier of announcements is: one file of this folder gives one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rankscope.agent.windows.notices import Notices

__all__ = ["Carrier", "Post"]


class Post(NamedTuple):
    """What a carrier gets: whose announcements, and between which ends."""

    run_id: str
    attempt: int
    rank: int
    board: Notices
    """Of this node. What rank 0 puts up there is carried away; what arrives is put up there."""
    environ: Mapping[str, str]
    """The variables with which this process was started."""


class Carrier(NamedTuple):
    """One way between nodes. It uses the network or a disk in threads or processes of its own, never in the training
    thread, and no barrier or collective: those deadlock when ranks disagree (vllm#51881, torchtitan#645)."""

    name: str
    phrase: str
    """Completes the sentence "Announcements travel ..."."""
    heard_within_s: float
    """An announcement has reached every rank by then."""
    possible: Callable[[Post], bool]
    """Whether this job has it. Asked in the training thread after its first step, of every rank alike."""
    start: Callable[[Post], None]
    """Begin to carry. Called in one process of a node: rank 0, and on other nodes the first."""
