"""All causes. To add one: a file beside the others, and a line here. Words, advice, decisions and the guide follow."""

from __future__ import annotations

from rankscope.causes import (
    allocator,
    extra_compute,
    h2d_copy,
    host_pause,
    host_sync,
    input_stall,
    launch_bound,
    recompile,
    slow_compute,
    uneven_work,
    unexplained,
)
from rankscope.causes.base import Cause

__all__ = ["BY_NAME", "CAUSES", "DEVICE_CAUSES", "HOST_CAUSES", "NOISY", "WORK_CAUSES", "as_markdown"]

CAUSES: tuple[Cause, ...] = (
    recompile.CAUSE,
    input_stall.CAUSE,
    allocator.CAUSE,
    h2d_copy.CAUSE,
    host_sync.CAUSE,
    host_pause.CAUSE,
    extra_compute.CAUSE,
    uneven_work.CAUSE,
    slow_compute.CAUSE,
    launch_bound.CAUSE,
    unexplained.CAUSE,
)
"""Most specific first: host time that two causes claim belongs to the first, and so does extra work."""

BY_NAME = {cause.name: cause for cause in CAUSES}
HOST_CAUSES = tuple(cause for cause in CAUSES if cause.host_time)
WORK_CAUSES = tuple(cause for cause in CAUSES if cause.more_work)
DEVICE_CAUSES = frozenset(cause.name for cause in WORK_CAUSES)
NOISY = frozenset(cause.name for cause in CAUSES if cause.noisy)


def as_markdown() -> str:
    """The rows of the table in docs/guide/slow-rank.md."""
    return "".join(f"| `{c.name}` | {c.phrase} | {c.first_try} |\n" for c in CAUSES)
