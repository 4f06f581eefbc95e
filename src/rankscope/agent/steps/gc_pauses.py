"""Pauses of this process by Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
from time import perf_counter_ns
from typing import NamedTuple

__all__ = ["GcPauses", "Pauses"]


class Pauses(NamedTuple):
    """Number of collections and their time, by generation 0, 1, 2."""

    collections: tuple[int, ...]
    ns: tuple[int, ...]


class GcPauses:
    """Sums the pauses of all collections, from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self._begun = 0
        self._sums = [0] * 6
        self.total_ns = 0
        """Time of all collections so far, taken or not."""

    def start(self) -> None:
        """Register with the collector."""
        if self._called not in gc.callbacks:
            gc.callbacks.append(self._called)

    def take(self) -> Pauses:
        """Return the sums since the last call, and reset them."""
        sums, self._sums = self._sums, [0] * 6
        return Pauses(tuple(sums[:3]), tuple(sums[3:]))

    def stop(self) -> None:
        """Unregister; the sums so far can still be taken."""
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, int]) -> None:
        # Called within a collection: use integers only, and create no object that the collector would track.
        if phase == "start":
            self._begun = perf_counter_ns()
        elif self._begun:
            generation = info["generation"]
            self._sums[generation] += 1
            took = perf_counter_ns() - self._begun
            self._sums[3 + generation] += took
            self.total_ns += took
            self._begun = 0
