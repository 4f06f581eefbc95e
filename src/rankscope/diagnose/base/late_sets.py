"""Several ranks that hold the job back in one way are one set: a host, a process group, a rail, or just these ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from rankscope.diagnose.base.decision import StragglerDecision
from rankscope.listing import some_ranks
from rankscope.records.evidence import Evidence, Place

__all__ = ["LateSet", "late_set", "shared_place"]

CHANCE = 0.01
"""Most probable that ranks drawn at random among all would lie in one of the places of this kind."""
MOST = 0.5
"""Of the costliest rank's cost each must have so much (they hide each other), or it must have less than so much of what
all of them cost (they take turns): else it is the culprit, and the others are mentioned."""
HOST_ADVICE = (
    "Look at the host before the code: power cap and temperature of its devices, other processes, CPU governor, memory "
    "bandwidth, its disk; drain it and test it alone."
)


@dataclass(frozen=True, slots=True)
class LateSet:
    """Ranks that are late for one cause, and what bringing all of them to the level of their peers would gain."""

    ranks: list[int]
    place: Place | None
    cost_ms: float
    """Per step."""
    error_ms: float

    @property
    def words(self) -> str:
        """``All 8 ranks of host gpu04 (8, 9, ...)``, at the beginning of a sentence."""
        if self.place is None:
            return f"Ranks {some_ranks(self.ranks)} together"
        late, count = len(self.ranks), len(self.place.ranks)
        some = f"{late} of the {count}" if late < count else "Both" if count == 2 else f"All {count}"
        where = {
            "host": f"of host {self.place.name}",
            "group": f"of process group {self.place.name}",
            "rail": f"with local rank {self.place.name}",
        }
        return f"{some} ranks {where[self.place.kind]} ({some_ranks(self.ranks)})"

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do first, where it may be the place and not what its ranks do."""
        return (HOST_ADVICE,) if self.place is not None and self.place.kind == "host" else ()


def late_set(evidence: Evidence, stragglers: Sequence[StragglerDecision]) -> LateSet | None:
    """Return the stragglers as one set, where there are several of one cause of which none costs most.

    All of them must have been mended together, else what the set costs is not known.
    """
    first = stragglers[0].suspect
    ranks = sorted(s.suspect.rank for s in stragglers)
    one_cause = len({s.cause for s in stragglers}) == 1 and not any(s.once for s in stragglers)
    if len(ranks) < 2 or not one_cause or sorted({first.rank, *first.beside}) != ranks or first.cost_ms <= 0:
        return None
    cost = max(first.together_ms, first.cost_ms)
    alike = all(s.suspect.cost_ms >= MOST * first.cost_ms for s in stragglers)
    if not alike and first.cost_ms >= MOST * cost:
        return None
    return LateSet(ranks, shared_place(evidence, ranks), cost, first.error_ms * cost / first.cost_ms)


def shared_place(evidence: Evidence, ranks: Sequence[int]) -> Place | None:
    """Return the place of which these ranks (sorted) are all, or so many that chance does not explain it.

    Of n ranks k fall into a given place of m by chance with C(m, k) / C(n, k); as many places of the kind are asked.
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
