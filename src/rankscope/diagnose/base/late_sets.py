"""Several ranks that delay the job in one way are one set: a host, a process group, a rail, a position in the mesh, or
just these ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from rankscope.diagnose.base.decision import StragglerDecision
from rankscope.listing import some_ranks
from rankscope.records.evidence import Evidence, Place

__all__ = ["LateSet", "late_set", "shared_place"]

CHANCE = 0.01
"""Largest probability at which ranks drawn at random from all would lie in one of the places of this kind."""
MOST = 0.5
"""The ranks form a set if each costs, or is delayed by, at least this share of the costliest rank's cost or delay (they
hide each other; of equally slow stages of a pipeline the last gains most), or if the costliest costs less than this
share of their joint cost (they take turns). Otherwise the costliest is the straggler, and the others are mentioned."""
HOST_ADVICE = (
    "Look at the host before the code: power cap and temperature of its devices, other processes, CPU governor, memory "
    "bandwidth, its disk; drain it and test it alone."
)


@dataclass(frozen=True, slots=True)
class LateSet:
    """Ranks that are late for one cause, and the gain of bringing all of them to the level of their peers."""

    ranks: list[int]
    place: Place | None
    cost_ms: float
    """Per step."""
    error_ms: float

    @property
    def words(self) -> str:
        """Return ``All 8 ranks of host gpu04 (8, 9, ...)``, for the beginning of a sentence."""
        if self.place is None:
            return f"Ranks {some_ranks(self.ranks)} together"
        late, count = len(self.ranks), len(self.place.ranks)
        some = f"{late} of the {count}" if late < count else "Both" if count == 2 else f"All {count}"
        where = {
            "host": f"of host {self.place.name}",
            "numa": f"of NUMA node {self.place.name}",
            "nvlink": f"joined by NVLink on host {self.place.name}",
            "adapter": f"at network adapter {self.place.name}",
            "group": f"of process group {self.place.name}",
            "rail": f"with local rank {self.place.name}",
            "mesh": f"at position {self.place.name}",
        }
        return f"{some} ranks {where[self.place.kind]} ({some_ranks(self.ranks)})"

    @property
    def advice(self) -> str:
        """What to do first, if the place instead of its ranks may be the cause; else empty."""
        return HOST_ADVICE if self.place is not None and self.place.kind in ("host", "numa", "nvlink") else ""


def late_set(evidence: Evidence, stragglers: Sequence[StragglerDecision]) -> LateSet | None:
    """Return the stragglers as one set, if there are several with one cause of which none costs most.

    All of them must have been equalised together, else the cost of the set is unknown.
    """
    first = stragglers[0].suspect
    ranks = sorted(s.suspect.rank for s in stragglers)
    one_cause = len({s.cause for s in stragglers}) == 1 and not any(s.once for s in stragglers)
    if len(ranks) < 2 or not one_cause or sorted({first.rank, *first.beside}) != ranks or first.cost_ms <= 0:
        return None
    cost = max(first.together_ms, first.cost_ms)
    alike = all(
        s.suspect.cost_ms >= MOST * first.cost_ms or s.suspect.excess_ms >= MOST * first.excess_ms for s in stragglers
    )
    if not alike and first.cost_ms >= MOST * cost:
        return None
    return LateSet(ranks, shared_place(evidence, ranks), cost, first.error_ms * cost / first.cost_ms)


def shared_place(evidence: Evidence, ranks: Sequence[int]) -> Place | None:
    """Return the place that these ranks (sorted) fill, or of which they are so many that chance does not explain it.

    By chance, k of n ranks are in a given place of m ranks with C(m, k) / C(n, k); this is multiplied by the number of
    places of the kind.
    """
    for place in evidence.places:
        if place.ranks == ranks:
            return place
    for place in evidence.places:
        if set(ranks) <= set(place.ranks):
            asked = sum(other.kind == place.kind for other in evidence.places)
            by_chance = asked * comb(len(place.ranks), len(ranks)) / comb(len(evidence.ranks), len(ranks))
            if by_chance < CHANCE and 2 * len(ranks) > len(place.ranks):
                return place
    return None
