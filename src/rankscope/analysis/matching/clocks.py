"""Put the ranks' clocks on one axis, using that a collective ends on all its ranks at the same time.

On one host the ends of a NCCL collective agree within 1 to 25 us (measured on 2 H100). Offsets of all ranks, and their
drift over the window where that helps, are one robust fit over the graph of groups: two ranks that never talk to each
other are compared through those they share. The error reported is the 95 % quantile of the residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.collectives import SYMMETRIC, Matched
from rankscope.analysis.matching.host_clocks import HostClock, host_offsets
from rankscope.analysis.rank.view import RankView

__all__ = ["Clocks", "align", "matched_times"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

MIN_FOR_DRIFT = 12
"""Calls a rank needs before its drift is fitted."""

WORTH = 0.1
"""Share by which a drift must lower the mean residual to be believed."""

ROUNDS = 40


@dataclass(slots=True)
class Clocks:
    """``aligned = own + offset + drift * (own - origin)``, ns. Columns as in :class:`Matched`."""

    method: str
    origin: int
    offset: F64
    drift: F64
    """Dimensionless; 1e-6 is one microsecond in a second."""
    error_ns: float | None
    spread_ns: float
    """Typical residual (1.48 median). Backends whose ends scatter have a large error but a well-known offset."""
    connected: NDArray[np.bool_]
    """Ranks whose clock is tied to the largest connected set of ranks."""

    def aligned(self, column: int, own: I64) -> F64:
        """Aligned times relative to ``origin``, ns (float64 holds them exactly for windows of days)."""
        relative = (own - self.origin).astype(np.float64)
        moved: F64 = relative * (1.0 + self.drift[column]) + self.offset[column]
        return moved


def matched_times(views: Sequence[RankView], matched: Matched, *, end: bool) -> I64:
    """Own-clock start or end of each member of the matched calls."""
    times = np.zeros(len(matched.call), np.int64)
    for column, view in enumerate(views):
        mine = matched.of(column)
        source = view.trace.events.end if end else view.trace.events.start
        times[mine] = source[view.trace.collectives.event[matched.row[mine]]]
    return times


@dataclass(slots=True)
class _Ends:
    """Ends of calls, a table (calls x members) for each number of members; their entries strung together elsewhere."""

    ranks: int
    columns: list[I64]
    """Whose ends they are, in tables of the same shape."""
    tables: list[F64]
    order: I64
    """Entries by column, then in order of the tables."""
    bounds: I64
    """Where each column's entries begin in ``order``."""

    @classmethod
    def of(cls, times: F64, matched: Matched, usable: NDArray[np.bool_]) -> _Ends:
        """From the ends of all members."""
        members = matched.by_size(usable)
        columns = [matched.column[m].astype(np.int64) for m in members]
        owner = np.concatenate([c.ravel() for c in columns])
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(len(matched.ranks) + 1))
        return cls(len(matched.ranks), columns, [times[m] for m in members], order, bounds)

    def residuals(self, slope: F64, offset: F64) -> F64:
        """Distance of each end from the median end of its call, of all entries."""
        parts = []
        for members, table in zip(self.columns, self.tables, strict=True):
            aligned = table * (1.0 + slope[members]) + offset[members]
            parts.append((aligned - np.median(aligned, axis=1, keepdims=True)).ravel())
        return np.concatenate(parts)

    def by_column(self, flat: F64) -> list[F64]:
        """Entries of each column."""
        return np.split(flat[self.order], self.bounds[1:-1])

    def medians(self, flat: F64) -> F64:
        """Median of each column's entries, 0 where it has none. Ranks with equally many are done at once."""
        out, count = np.zeros(self.ranks), np.diff(self.bounds)
        for size in np.unique(count[count > 0]).tolist():
            columns = np.flatnonzero(count == size)
            out[columns] = np.median(flat[self.order[self.bounds[columns][:, None] + np.arange(size)]], axis=1)
        return out

    def flat(self) -> F64:
        """Times of all entries."""
        return np.concatenate([t.ravel() for t in self.tables])

    def sizes(self) -> F64:
        """How many members the call of each entry has."""
        return np.concatenate([np.full(t.size, float(t.shape[1])) for t in self.tables])

    def by_members(self) -> list[tuple[I64, F64]]:
        """The calls of each set of members: their columns, and calls x members ends."""
        found = []
        for columns, table in zip(self.columns, self.tables, strict=True):
            which = _groups(columns)
            order = np.argsort(which, kind="stable")
            parts = np.split(order, np.flatnonzero(np.diff(which[order])) + 1)
            found += [(columns[mine[0]], table[mine]) for mine in parts]
        return found


def _groups(rows: I64) -> I64:
    """Number of the distinct row that each row is."""
    key = np.ascontiguousarray(rows).view([("", rows.dtype)] * rows.shape[1]).ravel()
    _, which = np.unique(key, return_inverse=True)
    return which.reshape(-1)


HOST_ERROR_NS = 43_000.0
"""Kineto's host times against CLOCK_REALTIME: 3 to 43 us, measured."""


def align(views: Sequence[RankView], matched: Matched, clocks: dict[int, HostClock] | None = None) -> Clocks:
    """Put all ranks on one axis, starting from the ``clocks`` of their hosts where the agent sampled them.

    Host events of one host are on one clock already, and the ends of a CPU backend's calls scatter by milliseconds; so
    for traces without a device and with one host name that clock is taken, unless the ends speak against it (two
    machines can bear one name). Device times have a clock per device and are always aligned by ends.
    """
    fitted = _by_ends(views, matched, clocks or {})
    hosts = {v.trace.meta.host for v in views}
    shared = len(hosts) == 1 and None not in hosts and not any(v.trace.has_device for v in views)
    if len(views) < 2 or not shared or np.abs(fitted.offset).max() > (fitted.error_ns or 0.0) + HOST_ERROR_NS:
        return fitted
    count = len(views)
    everyone = np.ones(count, np.bool_)
    return Clocks("host_clock", fitted.origin, np.zeros(count), np.zeros(count), HOST_ERROR_NS, HOST_ERROR_NS, everyone)


def _by_ends(views: Sequence[RankView], matched: Matched, clocks: dict[int, HostClock]) -> Clocks:
    """Fit offsets and drifts, starting from the hosts' clocks; without usable collectives that start is the answer."""
    count = len(views)
    origin = min((v.start for v in views), default=0)
    start, same, error = host_offsets([v.rank for v in views], clocks)
    given = Clocks("host_clock" if same.any() else "none", origin, start, np.zeros(count), error, error or 0.0, same)
    usable = _tying(matched)
    if not usable.any():
        return given
    table = _Ends.of((matched_times(views, matched, end=True) - origin).astype(np.float64), matched, usable)
    offset, connected = _first_guess(table, start)
    drift = np.zeros(count)
    offset = _settle(table, drift, offset)
    residual = table.residuals(drift, offset)
    slopes = _slopes(table, residual)
    if slopes.any():
        better = _settle(table, slopes, offset)
        for _ in range(3):
            slopes = slopes + _slopes(table, table.residuals(slopes, better))
            better = _settle(table, slopes, better)
        candidate = table.residuals(slopes, better)
        before, after = float(np.abs(residual).mean()), float(np.abs(candidate).mean())
        if before - after > max(WORTH * before, 200.0):
            offset, drift, residual = better, slopes, candidate
    reference = int(np.argmax(connected))
    # the axis is that of the lowest connected rank, at every time of the window
    drift = drift - drift[reference]
    offset = offset - offset[reference]
    # a rank is part of the median it is compared with, which n / (n - 1) undoes
    sizes = table.sizes()
    scaled = np.abs(residual) * sizes / (sizes - 1)
    return Clocks(
        "collective_ends",
        origin,
        offset,
        drift,
        float(np.quantile(scaled, 0.95)),
        1.4826 * float(np.median(scaled)),
        connected,
    )


def _tying(matched: Matched) -> NDArray[np.bool_]:
    """Calls whose ends tell of the clocks: symmetric ones, and others where they alone join ranks (pipeline stages)."""
    usable = np.array([k in SYMMETRIC for k in matched.kind], np.bool_)
    part = np.arange(len(matched.ranks))
    _, example = np.unique(matched.channel, return_index=True)
    members = {int(matched.channel[m]): matched.column[matched.first[m] : matched.first[m + 1]] for m in example}
    for channel in np.unique(matched.channel[usable]).tolist():
        joined = np.unique(part[members[channel]])
        part[np.isin(part, joined)] = joined[0]
    bridges = [c for c, columns in members.items() if len(np.unique(part[columns])) > 1]
    return usable | np.isin(matched.channel, bridges)


def _first_guess(table: _Ends, start: F64) -> tuple[F64, NDArray[np.bool_]]:
    """Breadth first over ranks that share calls, by the median difference of their ends."""
    count = table.ranks
    blocks: list[list[int]] = [[] for _ in range(count)]
    sets = table.by_members()
    for number, (members, _) in enumerate(sets):
        for column in members.tolist():
            blocks[column].append(number)
    offset, seen = start.copy(), np.zeros(count, np.bool_)
    best = np.zeros(count, np.bool_)
    for root in range(count):
        if seen[root] or not blocks[root]:
            continue
        part = np.zeros(count, np.bool_)
        part[root] = True
        queue = [root]
        while queue:
            here = queue.pop(0)
            apart: dict[int, list[F64]] = {}
            for number in blocks[here]:
                members, ends = sets[number]
                own = ends[:, int(np.flatnonzero(members == here)[0])]
                for place, other in enumerate(members.tolist()):
                    if not part[other]:
                        apart.setdefault(other, []).append(own - ends[:, place])
            for other, distances in apart.items():
                offset[other] = offset[here] + float(np.median(np.concatenate(distances)))
                part[other] = True
                queue.append(other)
        seen |= part
        if part.sum() > best.sum():
            best = part
    return offset, best


def _settle(table: _Ends, slope: F64, offset: F64) -> F64:
    """Alternate between the calls' common ends and the ranks' offsets, both as medians."""
    offset = offset.copy()
    for _ in range(ROUNDS):
        step = table.medians(table.residuals(slope, offset))
        offset -= step
        if np.abs(step).max(initial=0.0) < 1.0:
            break
    return offset


def _slopes(table: _Ends, residual: F64) -> F64:
    """Robust slope of each rank's residual over time (median of slopes between the halves of the window)."""
    slopes = np.zeros(table.ranks)
    times, distances = table.by_column(table.flat()), table.by_column(residual)
    for column, (when, apart) in enumerate(zip(times, distances, strict=True)):
        if len(when) < MIN_FOR_DRIFT:
            continue
        order = np.argsort(when)
        x, y, half = when[order], apart[order], len(when) // 2
        spread = x[-half:] - x[:half]
        if (spread > 0).all():
            slopes[column] = -float(np.median((y[-half:] - y[:half]) / spread))
    return slopes
