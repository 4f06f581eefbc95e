"""Ranks that spend clearly more on something than the median of their peers, whether or not it costs the job time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stragglers.profile import ATTRIBUTES, work_difference
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.causes.table import BY_NAME
from rankscope.records.evidence import Anomaly
from rankscope.statistics.medians import median_of_others
from rankscope.trace.columns import TRUNCATED

__all__ = ["find_anomalies"]

F64 = NDArray[np.float64]

UNEVEN_DEVICE = 1.4
"""Ratio of a rank's device work to its peers' from which on it is reported. Kernels that overlap a waiting collective
reach 1.32 without a fault."""
UNEVEN_CPU = 1.2
"""The same for operators on a CPU."""
UNEVEN_HOST = 1.5
"""The same for the host time of a cause."""
LEAST_SHARE, LEAST_MS = 0.02, 1.0
"""Smallest difference that is reported: a share of the step, and ms per step, whichever is more."""
MANY_SYNCS, MORE_SYNCS = 5.0, 3.0
"""Synchronisations per step that are reported: at least so many, and as many more than this multiple of the peers'."""


def find_anomalies(windows: Sequence[WindowResult], step_ms: float) -> list[Anomaly]:
    """Return what the sound ranks of all windows spend more on than their peers, in the order of ranks.

    Args:
        windows: those whose records can be trusted.
        step_ms: the job's step.
    """
    unsound = {rank for window in windows for rank in window.unsound}
    # A file is not in the order of time: of one that was cut off, whole threads and streams can be missing.
    unsound |= {view.rank for window in windows for view in window.views if TRUNCATED in view.trace.repairs}
    ranks = sorted({view.rank for window in windows for view in window.views} - unsound)
    if len(ranks) < 2:
        return []
    table = _times_and_syncs(windows, ranks)
    usual = median_of_others(table)
    least_ms = max(LEAST_SHARE * step_ms, LEAST_MS)
    work = _DeviceWork(windows[-1], least_ms)
    anomalies: list[Anomaly] = []
    for column, rank in enumerate(ranks):
        anomalies += _by_cause(rank, table[:, column], usual[:, column], least_ms)
        anomalies += work.more_than_peers(rank)
    return anomalies


def _times_and_syncs(windows: Sequence[WindowResult], ranks: Sequence[int]) -> F64:
    """Return a column for each rank: ms per step of each of ``ATTRIBUTES``, and the number of synchronisations per
    step."""
    place = {rank: column for column, rank in enumerate(ranks)}
    steps = max(sum(window.step_count for window in windows), 1)
    table = np.zeros((len(ATTRIBUTES) + 1, len(ranks)))
    for window in windows:
        for view, profile in zip(window.views, window.profiles, strict=True):
            if view.rank in place:
                times = [float(profile.length[name].sum()) / 1e6 for name in ATTRIBUTES]
                table[:, place[view.rank]] += np.array([*times, profile.count["syncs"].sum()]) / steps
    return table


def _by_cause(rank: int, own: F64, usual: F64, least_ms: float) -> Iterator[Anomaly]:
    """Compare a rank's column of the table with the medians of the others."""
    *own_times, syncs = own.tolist()
    *usual_times, usual_syncs = usual.tolist()
    for cause, own_ms, peers_ms in zip(ATTRIBUTES, own_times, usual_times, strict=True):
        anomaly = Anomaly(rank=rank, cause=cause, own_ms=own_ms, peers_ms=peers_ms)
        if BY_NAME[cause].by_count:
            # The duration of a sync shows how late the device is; a large number of them is a property of the code.
            if syncs >= MANY_SYNCS and syncs >= MORE_SYNCS * usual_syncs + MANY_SYNCS:
                anomaly.own_count, anomaly.peers_count = syncs, usual_syncs
                yield anomaly
        elif own_ms - peers_ms >= least_ms and own_ms >= UNEVEN_HOST * peers_ms:
            yield anomaly


class _DeviceWork:
    """Device work (without a device: operators) of the ranks of one window."""

    def __init__(self, window: WindowResult, least_ms: float) -> None:
        steps = max(window.step_count, 1)
        self._window, self._least_ms = window, least_ms
        self._ms = [sum(usage.compute for usage in own) / (1e6 * steps) for own in window.steps]
        self._column = {view.rank: column for column, view in enumerate(window.views)}
        # The ranks of each team, sorted by work: the median of the others then follows for each rank directly.
        self._teams = {key: sorted(team, key=lambda c: self._ms[c]) for key, team in window.plan.teams.items()}

    def more_than_peers(self, rank: int) -> list[Anomaly]:
        """Return an anomaly for each reason why a rank has clearly more work than its median peer."""
        if (own := self._column.get(rank)) is None:
            return []
        window = self._window
        team = self._teams.get(id(window.plan.peers[own]), [])
        if len(team) < 2:
            return []
        middle = team[(len(team) - 1) // 2]  # the median of the others, for a rank with more work than it
        own_ms, peers_ms = self._ms[own], self._ms[middle]
        limit = UNEVEN_DEVICE if window.views[own].device else UNEVEN_CPU
        if own_ms - peers_ms < self._least_ms or own_ms < limit * peers_ms:
            return []
        segments = np.arange(window.plan.size)
        causes = work_difference(
            window.views[own], window.views[middle], window.profiles[own], window.profiles[middle], segments
        )
        return [Anomaly(rank=rank, cause=cause, own_ms=own_ms, peers_ms=peers_ms) for cause in causes]
