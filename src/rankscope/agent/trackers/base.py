"""The record of a tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Log", "Tracker"]

Log = Callable[[Mapping[str, float], int], None]
"""Function that logs numbers by name under a step. It may block while it waits for a server, and may raise."""


@dataclass(frozen=True, slots=True)
class Tracker:
    """One tracker. It imports no module that the script has not imported, and opens no run."""

    name: str
    """Name, as in :mod:`rankscope.exporters`."""
    opened: Callable[[], Log | None]
    """Called in the training thread. Returns the function that logs into the run that the script has open; None if none
    is open."""
    watch: Callable[[], None] = lambda: None
    """Called once, before the script runs, if :attr:`opened` needs to observe what the script opens."""
