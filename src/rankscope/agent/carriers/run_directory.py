"""Carrier through the run directory, which all nodes see. The node helpers carry, so that no rank uses a shared disk.

A rank requests it in the spool; the rest is :mod:`rankscope.node.watching.announcements`.
"""

from __future__ import annotations

from rankscope.agent.carriers.base import Carrier

__all__ = ["CARRIER"]

CARRIER = Carrier(
    name="run_directory",
    phrase="through the run directory",
    heard_within_s=5.0,
    possible=lambda _post: True,
    start=lambda post: post.notices.post("carry", "head" if post.rank == 0 else "other"),
)
"""By default NFS shows new files of other clients after 3 s at the earliest (nfs(5), acregmin), and helpers look every
second. A rank that receives an announcement too late notes it in its record."""
