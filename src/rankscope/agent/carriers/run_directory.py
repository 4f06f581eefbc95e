"""The run directory, which all nodes see: the helpers of the nodes carry, so that no rank touches a shared disk.

A rank says in the spool that it is wanted; the rest is :mod:`rankscope.node.watching.announcements`.
"""

from __future__ import annotations

from rankscope.agent.carriers.base import Carrier

__all__ = ["CARRIER"]

CARRIER = Carrier(
    name="run_directory",
    phrase="through the run directory",
    heard_within_s=5.0,
    possible=lambda _post: True,
    start=lambda post: post.board.post("carry", "head" if post.rank == 0 else "other"),
)
"""NFS shows new files of other clients after 3 s at the earliest by default (nfs(5), acregmin), and helpers look every
second. A rank that hears too late says so in its record."""
