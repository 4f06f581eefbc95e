"""All step signals, in order of trust. To add one: a file beside the others, and a line here.

Other packages add signals through the entry points ``rankscope.step_signals`` (see :mod:`rankscope.plugins`).
"""

from __future__ import annotations

from rankscope import plugins
from rankscope.agent.signals import backward, forward, optimizer, profiler, scaler, user
from rankscope.agent.signals import input as input_items
from rankscope.agent.signals.base import Signal

__all__ = ["OURS", "SIGNALS", "all_signals"]

OURS: tuple[Signal, ...] = (
    user.SIGNAL,
    optimizer.SIGNAL,
    scaler.SIGNAL,
    profiler.SIGNAL,
    backward.SIGNAL,
    input_items.SIGNAL,
    forward.SIGNAL,
)
"""In order of trust, the most trusted first."""

SIGNALS = tuple(signal.name for signal in OURS)


def all_signals() -> tuple[Signal, ...]:
    """Return our signals, with those of other packages after ``user``: they know the job, but the script knows it
    better."""
    theirs = plugins.load("step_signals", Signal, frozenset(SIGNALS), "name")
    return (OURS[0], *theirs, *OURS[1:])
