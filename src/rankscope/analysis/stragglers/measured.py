"""Measure what each rank costs the job, over all its work: slow devices, more work, and host time with a named cause.

A *candidate* is one possible reason on one rank, with the time it takes beyond the usual elsewhere. Candidates are
found by a test against the scatter of the steps, corrected for the number of tests, and not by a threshold on single
segments: a device that is 15 % slower shows in the sum of all kernels, whatever the number of calls that divide them.
The cost of a candidate is what the replay gains without that time.

Candidates hide each other: of two equally slow devices, neither costs anything alone. All are therefore removed
together, and the gain of each is computed with the others removed. Candidates without a relevant gain are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.replay.longest_path import Changed
from rankscope.analysis.replay.overlap_slowdown import OverlapSlowdown
from rankscope.analysis.replay.what_if import Replay, gains_of_each
from rankscope.analysis.stragglers.candidates import Candidate, Window
from rankscope.analysis.stragglers.cost import RankCost
from rankscope.analysis.stragglers.extra_syncs import extra_syncs
from rankscope.analysis.stragglers.kernel_table import kernel_table
from rankscope.analysis.stragglers.model_error import FLOOR, model_error
from rankscope.analysis.stragglers.more_operators import more_operators
from rankscope.analysis.stragglers.more_work import more_work
from rankscope.analysis.stragglers.own_delays import host_delays
from rankscope.analysis.stragglers.slow_devices import slow_devices
from rankscope.analysis.stragglers.statistics import confidence
from rankscope.statistics.thresholds import LEAST_COST, MATTERS

__all__ = ["Measured", "asking", "join", "measure"]

F64 = NDArray[np.float64]

MOST = 64
"""Largest number of ranks that are replayed one by one. If there are more, stragglers are not the exception."""

NEGLIGIBLE = FLOOR * MATTERS / 10
"""Loss of speed beside communication below which it is not replayed: no step changes by a larger share than that, which
is a tenth of the smallest error that is stated of the smallest cost."""


@dataclass(slots=True)
class Measured:
    """The cost of one rank. Times in ns."""

    column: int
    gains: F64
    """Gain per step of the replay: what removing this rank's extra time gains once that of the ranks ``beside`` is
    removed."""
    error: float
    """Half width of the 95 % confidence interval of the mean gain."""
    explained: dict[str, float]
    """Cause -> time beyond the usual, summed over the window."""
    beside: list[int] = field(default_factory=list)
    together: F64 | None = None
    """Gain per step if the extra time of this rank and of those ``beside`` is removed; None for a single rank."""


def measure(window: Window, step_ns: float) -> tuple[list[Measured], float, float]:
    """Find the ranks that cost the job more than :data:`MATTERS` of its step time ``step_ns``.

    Returns:
        The ranks, the costliest first; the share by which a device must be slower than the others to be told from
        noise, infinite where unknown; and the share of their speed that kernels lose beside communication.
    """
    replay, found, lost, shows = window.replay, host_delays(window), 0.0, np.inf
    if window.device:
        slow, lost, shows = _on_devices(window)
        found += slow
        found += extra_syncs(window)
    elif window.complete:
        found += more_operators(window)
    found = [c for c in found if window.trusted[c.column]]
    least = MATTERS * step_ns * replay.steps
    extra: dict[int, float] = {}
    for candidate in found:
        extra[candidate.column] = extra.get(candidate.column, 0.0) + candidate.extra
    # Removing extra time gains no more than that time.
    columns = sorted((r for r in extra if extra[r] >= least), key=lambda r: -extra[r])[:MOST]
    columns, together, gains = _least_set(window, found, columns, least, lost)
    ranks = [_measured(r, gains[r], [c for c in found if c.column == r], columns, window.mesh) for r in columns]
    if len(ranks) > 1:
        for rank in ranks:
            rank.together = together
    return sorted(ranks, key=lambda rank: -float(rank.gains.sum())), float(np.expm1(shows)), lost


def asking(replay: Replay, lost: float) -> Callable[[Changed], F64]:
    """Return what :meth:`Replay.gains` is if kernels lose this share of their speed beside communication."""
    if lost <= NEGLIGIBLE:
        return replay.gains
    return partial(OverlapSlowdown.of(replay.graph, lost).gains, replay)


def _on_devices(window: Window) -> tuple[list[Candidate], float, float]:
    """Return what :func:`slow_devices` does, and with the candidates those that have more work."""
    table = kernel_table(window.views, window.plan.peers, window.steps)
    if not len(table.rank):
        return [], 0.0, np.inf
    found, lost, shows = slow_devices(window, table)
    return found + (more_work(window, table) if window.complete else []), lost, shows


def _least_set(
    window: Window, found: Sequence[Candidate], columns: list[int], least: float, lost: float
) -> tuple[list[int], F64, dict[int, F64]]:
    """Drop the ranks that gain less than ``least`` ns; ``lost`` is the share of speed lost beside communication.

    Returns:
        The ranks left, and the two of :func:`gains_of_each` for them.
    """
    replay = window.replay
    together, gains = np.zeros(replay.steps), dict[int, F64]()
    # With many calls the others wait beside most of their work, and much of a gain is that they no longer do.
    ask = asking(replay, lost if columns else 0.0)
    while columns:
        together, own = gains_of_each(columns, lambda some: ask(_mended(replay, found, some)))
        gains = dict(zip(columns, own, strict=True))
        kept = [r for r in columns if gains[r].sum() >= least]
        if len(kept) == len(columns):
            break
        columns = kept
    return columns, together, gains


def join(lateness: Sequence[RankCost], ranks: Sequence[Measured], step_ns: float, *, device: bool) -> None:
    """Merge the measured ranks into what was found segment by segment.

    Where both have a result for a rank, the larger gain is kept, because kernels that never ran alone are in the
    segments only. The test that the rank is late holds for both. Without a ``device``, only delays with a cause of
    their own are measured, and a rank that costs enough to be judged by its segments is judged by them, unless both
    give one cause and its segments show less: what is in all of them looks like a host that is slow at everything.
    """
    for rank in ranks:
        late = lateness[rank.column]
        if not device and late.gains.mean() >= LEAST_COST * step_ns and not _shows_more(rank, late):
            continue
        if device and rank.gains.sum() < late.gains.sum():
            late.error = rank.error * float(late.gains.sum() / rank.gains.sum())
            continue
        late.gains, late.error, late.beside, late.together = rank.gains, rank.error, rank.beside, rank.together
        late.explained = dict(rank.explained)
        late.excess = sum(rank.explained.values())


def _shows_more(rank: Measured, late: RankCost) -> bool:
    """Whether both have the same leading cause, and what was measured over the whole rank gains more."""
    leading = [max(found, key=lambda c: found[c], default="") for found in (rank.explained, late.explained)]
    return leading[0] == leading[1] and bool(rank.gains.sum() > late.gains.sum())


def _measured(column: int, gains: F64, reasons: Sequence[Candidate], columns: Sequence[int], mesh: str) -> Measured:
    extra = sum(c.extra for c in reasons)
    share = float(np.sqrt(sum((c.error * c.extra) ** 2 for c in reasons))) / max(extra, 1e-9)
    mean = float(gains.mean())
    explained: dict[str, float] = {}
    for reason in sorted(reasons, key=lambda c: -c.extra):
        explained[reason.cause] = explained.get(reason.cause, 0.0) + reason.extra
    model = max(model_error(mesh, cause) for cause in explained)
    error = mean * float(np.hypot(confidence(len(gains)) * share, model))
    return Measured(column, gains, error, explained, [c for c in columns if c != column])


def _mended(replay: Replay, found: Sequence[Candidate], columns: Sequence[int]) -> Changed:
    graph, some = replay.graph, [c for c in found if c.column in columns]
    edges = np.unique(np.concatenate([c for own in some for c in (own.edges, own.free, own.cut)]).astype(np.int32))
    work = graph.work[edges]
    for candidate in some:
        work[np.searchsorted(edges, candidate.edges)] -= candidate.less
    np.maximum(work, 0.0, out=work)
    for candidate in some:
        work[np.searchsorted(edges, candidate.free)] = -graph.base[candidate.free]
        work[np.searchsorted(edges, candidate.cut)] = -np.inf
    return Changed(edges, work)
