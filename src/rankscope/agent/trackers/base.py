"""What a tracker is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Log", "Tracker"]

Log = Callable[[Mapping[str, float], int], None]
"""Logs numbers by name under a step. It may wait for a server, and may raise."""


@dataclass(frozen=True, slots=True)
class Tracker:
    """One tracker. It imports nothing that the script has not imported, and opens nothing."""

    name: str
    """As in :mod:`rankscope.exporters`."""
    opened: Callable[[], Log | None]
    """Called in the training thread; returns what logs into the run that the script has open there; None if none is."""
    watch: Callable[[], None] = lambda: None
    """Called once, before the script runs, if :attr:`opened` has to know of what the script opens."""
