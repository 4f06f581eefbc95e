"""Candidate ranks: what the windows found about each rank that could hold the job up, pooled."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.evidence.missing_ranks import holds, lost_partners
from rankscope.analysis.stragglers.cost import RankCost, sign_flip
from rankscope.analysis.stragglers.model_error import model_error
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.evidence import Suspect
from rankscope.records.rows import RankIdle, RankSummary

__all__ = ["find_suspects"]

F64 = NDArray[np.float64]


def find_suspects(
    windows: Sequence[WindowResult], ranks: Sequence[RankSummary], idle: Sequence[RankIdle]
) -> list[Suspect]:
    """Return the candidate ranks, the one with the largest cost first.

    Args:
        windows: those whose replay can be trusted, or that need none because no rank makes others wait.
        ranks: the ranks of the report.
        idle: the idle time of the report.
    """
    pooled: dict[int, _Pooled] = defaultdict(_Pooled)
    for window in windows:
        for view, late, held in zip(window.views, window.lateness, holds(window), strict=False):
            if view.rank not in window.unsound:  # otherwise its own numbers do not show whether it is late, and why
                pooled[view.rank].add(late, held, {window.views[column].rank for column in late.beside})
    replay_error_ns = max(map(_replay_error, windows), default=0.0)
    absent = {row.rank for row in ranks if row.compute_pct is None}
    views = {view.rank: view for window in windows for view in window.views}
    caused_ms = {row.rank: row.caused_wait_ms_per_step or 0.0 for row in ranks}
    longest_ms, waits_longest, second_ms = _longest_waits(idle)
    suspects = []
    for rank, own in pooled.items():
        suspect = own.suspect(rank, windows[-1].mesh, replay_error_ns)
        suspect.caused_wait_ms = caused_ms.get(rank, 0.0)
        # The report shows no waiting that overlaps work of the rank that waits.
        suspect.held_ms = min(suspect.held_ms, second_ms if rank == waits_longest else longest_ms)
        if group := own.held_group:
            suspect.lost, suspect.lost_group = lost_partners(views[rank], group, absent)
        suspects.append(suspect)
    return sorted(suspects, key=lambda suspect: -suspect.cost_ms)


@dataclass(slots=True)
class _Pooled:
    """What all windows found about one rank; times in ns, over all windows."""

    gains: list[F64] = field(default_factory=list)
    """Of each window the gain of each step without the rank's extra time."""
    excess: float = 0.0
    """The extra time."""
    explained: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Cause -> part of the extra time."""
    uniform: list[float] = field(default_factory=list)
    """Of each window the uniform slowness of the host, as a factor."""
    errors: list[float] = field(default_factory=list)
    """Of each window in which the cost was measured over the whole rank its error."""
    beside: set[int] = field(default_factory=set)
    """Ranks that hide its cost."""
    together: float = 0.0
    """Gain without the extra time of all of these."""
    held: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Ranks of a group -> how long they waited for it."""

    def add(self, late: RankCost, held: Counter[tuple[int, ...]], beside: AbstractSet[int]) -> None:
        """Add a window."""
        self.gains.append(late.gains)
        self.excess += late.excess
        for cause, ns in late.explained.items():
            self.explained[cause] += ns
        self.uniform.append(late.uniform)
        if late.error is not None:
            self.errors.append(late.error)
        self.beside |= beside
        self.together += float((late.gains if late.together is None else late.together).sum())
        self.held += held

    @property
    def held_group(self) -> tuple[int, ...]:
        """The ranks of the group that waited longest for it; empty if none did."""
        return self.held.most_common(1)[0][0] if self.held else ()

    def suspect(self, rank: int, mesh: str, replay_error_ns: float) -> Suspect:
        """Return the record, without what only the report's rows know."""
        gains = np.concatenate(self.gains)
        steps = max(len(gains), 1)
        largest = max(self.explained, key=lambda cause: self.explained[cause], default=None)
        known_error = 0.0 if largest is None else model_error(mesh, largest)
        return Suspect(
            rank=rank,
            cost_ms=float(gains.sum()) / steps / 1e6,
            error_ms=float(np.hypot(self._error(gains, known_error), replay_error_ns)) / 1e6,
            gains_ms=[float(gain) / 1e6 for gain in gains],
            measured=bool(self.errors),
            model_error=known_error,
            p_value=sign_flip(gains),
            excess_ms=self.excess / steps / 1e6,
            explained={
                cause: ns / steps / 1e6 for cause, ns in sorted(self.explained.items(), key=lambda item: -item[1])
            },
            uniform=float(np.median(self.uniform)),
            beside=sorted(self.beside),
            together_ms=self.together / steps / 1e6 if self.beside else 0.0,
            held_ms=self.held[self.held_group] / steps / 1e6,
        )

    def _error(self, gains: F64, known_error: float) -> float:
        """Return the error of the cost: measured, or the scatter of the steps together with that of the model."""
        if self.errors:
            return float(np.mean(self.errors))
        several = len(gains) > 1
        scatter = float(gains.std(ddof=1)) / np.sqrt(len(gains)) if several else float(gains.sum())
        return float(np.hypot(scatter, known_error * gains.mean()))


def _replay_error(window: WindowResult) -> float:
    """Return by how much, in ns, the replay of a window misses its step, and what the clock error adds to that."""
    if window.replay is None:
        return 0.0
    return window.replay.error * (window.step_ns or 0.0) + 2.0 * window.clocks.spread_ns


def _longest_waits(idle: Sequence[RankIdle]) -> tuple[float, int, float]:
    """Return the longest exposed waiting in collectives, ms per step, of which rank it is, and the longest of any other
    rank."""
    longest, rank = max(((row.waiting_ms or 0.0, row.rank) for row in idle), default=(0.0, -1))
    return longest, rank, max((row.waiting_ms or 0.0 for row in idle if row.rank != rank), default=0.0)
