"""Pipeline stages of which one computes longer than the others."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from rankscope.causes.wording import amount
from rankscope.diagnose.base.contention import shares_cores
from rankscope.listing import named_ranks
from rankscope.records.evidence import Evidence, StageBalance, StageWork, Suspect
from rankscope.statistics.thresholds import LEAST_COST, MATTERS

__all__ = ["LongStage", "long_stage"]


@dataclass(frozen=True, slots=True)
class LongStage:
    """The stage that computes longest, and what the step would gain with it at the level of the others."""

    balance: StageBalance
    cost_ms: float
    error_ms: float

    @property
    def ranks(self) -> list[int]:
        """Ranks of the stage."""
        return self.balance.stages[self.balance.longest].ranks

    @property
    def name(self) -> str:
        """The stage in words: ``stage 1 (rank 1)``."""
        return self.named(self.balance.longest)

    @property
    def own_ms(self) -> float:
        """Its work per step."""
        return self.balance.stages[self.balance.longest].ms

    @property
    def others_ms(self) -> float:
        """Median work of the other stages per step."""
        return statistics.median(s.ms for s in self._others)

    @property
    def _others(self) -> list[StageWork]:
        return [s for place, s in enumerate(self.balance.stages) if place != self.balance.longest]

    def named(self, place: int) -> str:
        """Return a stage in words."""
        ranks = self.balance.stages[place].ranks
        return f"stage {place} ({named_ranks(ranks)})"

    @property
    def more(self) -> str:
        """Which operator it runs more often than the shortest stage: ``108 more aten::mm``; empty if none."""
        extra = next((o for o in self.balance.operators if o.calls - o.peers_calls >= 1), None)
        return "" if extra is None else f"{extra.calls - extra.peers_calls:.0f} more {extra.name}"

    @property
    def lines(self) -> list[str]:
        """The measurements in sentences."""
        told = any(s.backward_ms for s in self.balance.stages)  # else the traces do not show which work is backward
        parts = ", ".join(
            f"{self.named(place)} {amount(s.forward_ms)} and {amount(s.backward_ms)}"
            if told
            else f"{self.named(place)} {amount(s.ms)}"
            for place, s in enumerate(self.balance.stages[:8])
        )
        more = " ..." if len(self.balance.stages) > 8 else ""
        found = [f"{'Forward and backward' if told else 'Work'} per step: {parts}{more}."]
        if self.more:
            found.append(f"It runs {self.more} a step than {self.named(self.balance.shortest)}.")
        else:
            found.append(
                f"It runs no operator more often than {self.named(self.balance.shortest)}: its operators are larger, "
                "or the same ones take longer."
            )
        even = max(self.balance.even_ms, 0.0)
        found.append(f"If all stages computed equally long, the step would save {amount(even)}, by replay.")
        return found


def long_stage(evidence: Evidence) -> LongStage | None:
    """Return the longest stage if it costs the job time: the interval of the cost excludes what does not matter.

    Without devices, its threads may have waited for a CPU longer than those of other stages: that part is taken off. If
    it runs no operator more often, other processes on its cores may be why the same work takes longer.
    """
    balance, step = evidence.stages, evidence.whole_step_ms
    if balance is None or not step:
        return None
    found = LongStage(balance, balance.lowered_ms, balance.error_ms)
    if not evidence.device and found.own_ms > found.others_ms:
        by_machine = _held_longer(evidence, balance) / (found.own_ms - found.others_ms)
        kept = min(max(1.0 - by_machine, 0.0), 1.0)
        found = LongStage(balance, kept * balance.lowered_ms, kept * balance.error_ms)
        if not found.more and any(_shares_cores(evidence, found, rank) for rank in found.ranks):
            return None
    least = MATTERS if evidence.device else LEAST_COST
    return found if found.cost_ms - found.error_ms > least * step else None


def _shares_cores(evidence: Evidence, found: LongStage, rank: int) -> bool:
    asked = Suspect(rank=rank, cost_ms=found.cost_ms, error_ms=found.error_ms, gains_ms=[])
    return shares_cores(evidence, asked)


def _held_longer(evidence: Evidence, balance: StageBalance) -> float:
    """Return how much longer per step the ranks of the longest stage waited for a CPU than those of the others, ms."""
    if evidence.contention is None:
        return 0.0
    held = {r.rank: statistics.fmean(r.held_ms) for r in evidence.contention.ranks if r.held_ms}
    stages = [[held[r] for r in s.ranks if r in held] for s in balance.stages]
    if not all(stages):
        return 0.0
    others = [statistics.fmean(s) for place, s in enumerate(stages) if place != balance.longest]
    return statistics.fmean(stages[balance.longest]) - statistics.median(others)
