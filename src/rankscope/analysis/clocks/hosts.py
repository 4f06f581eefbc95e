"""Clock offsets from the agent's clock samples, for ranks that no collective connects.

Ranks of one host read the same clocks. Their times differ only if CLOCK_REALTIME was set (time synchronisation) between
their samples, which shows in its difference from CLOCK_MONOTONIC, which is never set. Between hosts, nothing is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.records.manifest import RunManifest

__all__ = ["HostClock", "host_clocks", "host_offsets"]

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HostClock:
    """``ahead_ns``: CLOCK_REALTIME minus CLOCK_MONOTONIC, median; ``scatter_ns``: range of the rank's samples of it."""

    host: str
    ahead_ns: int
    scatter_ns: int


def host_clocks(manifest: RunManifest | None, attempt: int, window: int) -> dict[int, HostClock]:
    """Return rank -> clock for the ranks that left samples in this window."""
    found = {}
    for record in (r for w in manifest.windows for r in w.records) if manifest else ():
        if (record.attempt, record.window) == (attempt, window) and record.clock:
            ahead = sorted(s.realtime_ns - s.monotonic_ns for s in record.clock)
            found[record.rank] = HostClock(record.host, ahead[len(ahead) // 2], ahead[-1] - ahead[0])
    return found


def host_offsets(ranks: Sequence[int], clocks: dict[int, HostClock]) -> tuple[F64, NDArray[np.bool_], float | None]:
    """Return (offset per rank in ns, mask of the ranks on the host with most ranks, error in ns or None without
    such)."""
    offset, same = np.zeros(len(ranks)), np.zeros(len(ranks), np.bool_)
    hosts = Counter(clocks[r].host for r in ranks if r in clocks)
    references: dict[str, int] = {}
    for column, rank in enumerate(ranks):
        if rank in clocks:
            own = clocks[rank]
            offset[column] = references.setdefault(own.host, own.ahead_ns) - own.ahead_ns
            same[column] = own.host == hosts.most_common(1)[0][0]
    if same.sum() < 2:
        return offset, np.zeros(len(ranks), np.bool_), None
    return offset, same, float(max(clocks[r].scatter_ns for r, s in zip(ranks, same.tolist(), strict=True) if s))
