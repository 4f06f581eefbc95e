"""Table of all causes. To add one, add a file to this folder and a line here: wording, advice and the guide use it.

Other packages add causes through the entry points ``rankscope.causes`` (see :mod:`rankscope.plugins`).
"""

from __future__ import annotations

import re
from dataclasses import replace

from rankscope import plugins
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
from rankscope.causes.base import Cause, HostTime, Spans, WorkComparison

__all__ = ["BY_NAME", "CAUSES", "DEVICE_CAUSES", "HOST_CAUSES", "NOISY", "OURS", "WORK_CAUSES", "as_markdown"]

OURS: tuple[Cause, ...] = (
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
"""The most specific cause first: if two causes account for the same time or extra work, the first one gets it."""

_NOTHING = re.compile(r"(?!)")


def _guarded(cause: Cause) -> Cause:
    """Return a copy of another package's cause whose functions account for nothing when they raise an error."""

    def host_time(host: HostTime) -> Spans:
        try:
            return cause.host_time(host) if cause.host_time else host.events(_NOTHING)
        except Exception as error:
            plugins.failed("causes", cause.name, error)
            return host.events(_NOTHING)

    def more_work(work: WorkComparison) -> bool:
        try:
            return bool(cause.more_work and cause.more_work(work))
        except Exception as error:
            plugins.failed("causes", cause.name, error)
            return False

    return replace(
        cause, host_time=host_time if cause.host_time else None, more_work=more_work if cause.more_work else None
    )


_THEIRS = plugins.load("causes", Cause, frozenset(cause.name for cause in OURS), "name")

CAUSES = (*map(_guarded, _THEIRS), *OURS)
"""All causes; those of other packages come first, because they are more specific than the built-in ones."""

BY_NAME = {cause.name: cause for cause in CAUSES}
HOST_CAUSES = tuple(cause for cause in CAUSES if cause.host_time)
WORK_CAUSES = tuple(cause for cause in CAUSES if cause.more_work)
DEVICE_CAUSES = frozenset(cause.name for cause in WORK_CAUSES)
NOISY = frozenset(cause.name for cause in CAUSES if cause.noisy)


def as_markdown() -> str:
    """Return the rows of the table in docs/guide/slow-rank.md."""
    return "".join(f"| `{c.name}` | {c.phrase} | {c.first_try} |\n" for c in OURS)
