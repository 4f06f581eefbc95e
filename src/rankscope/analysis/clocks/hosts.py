"""What the agent's clock samples say of the ranks' clocks, for ranks that no collective ties together.

Ranks of one host read the same clocks. Only a step of CLOCK_REALTIME (time synchronisation) between their samples sets
them apart, and the distance to CLOCK_MONOTONIC, which never steps, shows it. Between hosts nothing is known.
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
    """``ahead_ns``: CLOCK_REALTIME less CLOCK_MONOTONIC, ``scatter_ns``: how far a rank's samples of it are apart."""

    host: str
    ahead_ns: int
    scatter_ns: int


def host_clocks(manifest: RunManifest | None, attempt: int, window: int) -> dict[int, HostClock]:
    """Rank -> clock, of the ranks that left samples in this window."""
    found = {}
    for record in (r for w in manifest.windows for r in w.records) if manifest else ():
        if (record.attempt, record.window) == (attempt, window) and record.clock:
            ahead = sorted(s.realtime_ns - s.monotonic_ns for s in record.clock)
            found[record.rank] = HostClock(record.host, ahead[len(ahead) // 2], ahead[-1] - ahead[0])
    return found


def host_offsets(ranks: Sequence[int], clocks: dict[int, HostClock]) -> tuple[F64, NDArray[np.bool_], float | None]:
    """(offset per rank in ns, which ranks are on the host with most of them, error in ns or None if none is)."""
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
