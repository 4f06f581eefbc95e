"""Align the clocks of all ranks.

Ranks of one host read one clock. Where the host is known, that is used first, and the ends of calls only test it.
Otherwise clocks are aligned by the ends of collectives, which agree within 1 to 25 us on one host (measured on 2 H100).
The offsets of all ranks, their drifts where these improve the fit, and jumps of clocks that were set within the window
(``set_clocks``) are one robust fit over the graph of groups, so that two ranks without a common call are aligned
through others. An all-to-all ends later on ranks that receive more, and a message may end before its receiver waits for
it: such calls are used only where nothing else connects the ranks.

The stated error is the 95 % quantile of the residuals, widened for few calls. It is unknown where there are no more
ends than unknowns, so that nothing tests the fit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.fit import CLOSE_NS, Ends, first_guess, settle, slopes
from rankscope.analysis.clocks.hosts import HostClock, host_offsets
from rankscope.analysis.clocks.set_clocks import ClockStep, find_clock_step
from rankscope.analysis.matching.collectives import SYMMETRIC, TOGETHER, Matched
from rankscope.analysis.matching.pair_clocks import CERTAIN_NS, ENDS_NS
from rankscope.analysis.rank.view import RankView

__all__ = ["Clocks", "align", "matched_times"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

WORTH = 0.1
"""Least share by which drifts must lower the mean residual to be accepted."""

WORTH_NS = 200.0
"""Least amount by which they must lower it."""

SCREENED = 32
"""Number of calls of each set of ranks that decide whether drifts are tried on all calls: if drifts improve the fit to
these by half of what they must. By chance alone they improve it by 3 %, and by 14 % where it is 12 % on all calls."""

STEP_WORTH = 0.5
"""Greatest share of the mean residual that may remain for a jump of a clock to be accepted. It is stricter than for a
drift because a jump adds two unknowns, and because clocks are seldom set."""

HOST_ERROR_NS = 43_000.0
"""Difference of Kineto's host times from CLOCK_REALTIME: 3 to 43 us (measured)."""

REFUTED = 0.05
"""Share of calls that end on one rank before they begin on another, above which the ranks are taken to read several
clocks."""

STUDENT = (6.48, 2.20, 1.62, 1.42, 1.31, 1.25, 1.21, 1.18, 1.15, 1.14)
"""95 % quantile of Student's t over that of the normal distribution, for 1 to 10 degrees of freedom."""


@dataclass(slots=True)
class Clocks:
    """Alignment of all ranks: ``aligned = t + offset + drift * (t - origin)``, in ns.

    ``t`` is the rank's own time minus the earlier jumps of its clock. Columns are those of :class:`Matched`.
    """

    method: str
    origin: int
    offset: F64
    drift: F64
    """Dimensionless; 1e-6 is one microsecond a second."""
    error_ns: float | None
    """Clock error in ns; None where no ends are left to test the fit."""
    spread_ns: float
    """Typical residual (1.48 times the median). A backend with scattered ends has a large error but a well-known
    offset."""
    connected: NDArray[np.bool_]
    """Whether each rank's clock is connected to the largest set of ranks."""
    steps: dict[int, list[ClockStep]] = field(default_factory=dict)
    """Column -> jumps of its clock within the window."""
    doubtful: list[int] = field(default_factory=list)
    """Columns of ranks whose trace names the host of others but whose calls show another clock."""

    def aligned(self, column: int, own: I64) -> F64:
        """Return aligned times relative to ``origin``, in ns (exact in float64 for windows of days)."""
        relative = (own - self.origin).astype(np.float64)
        for step in self.steps.get(column, ()):
            relative -= np.where(own >= step.at, step.size, 0.0)
        moved: F64 = relative * (1.0 + self.drift[column]) + self.offset[column]
        return moved


def matched_times(views: Sequence[RankView], matched: Matched, *, end: bool) -> I64:
    """Own-clock start or end of each member of the matched calls, in ns."""
    times = np.zeros(len(matched.call), np.int64)
    for column, view in enumerate(views):
        mine = matched.of(column)
        event = view.trace.collectives.event[matched.row[mine]]
        times[mine] = view.trace.events.start[event]
        if end:
            times[mine] += view.trace.events.duration[event]
    return times


def align(views: Sequence[RankView], matched: Matched, clocks: dict[int, HostClock] | None = None) -> Clocks:
    """Align the clocks of all ranks, starting from the ``clocks`` of their hosts where the agent sampled them.

    Host events of one host share one clock, and the ends of a CPU backend's calls scatter by milliseconds. For traces
    without a device and with one host name, that clock is therefore used, unless the ends contradict it (two machines
    may have one name). Device times differ from host times by microseconds, which the ends of collectives show.
    """
    known = clocks or {}
    fitted = _by_ends(views, matched, known)
    hosts = {v.trace.meta.host for v in views}
    shared = len(hosts) == 1 and None not in hosts and not any(v.trace.has_device for v in views)
    if len(views) < 2 or not shared or np.abs(fitted.offset).max() > (fitted.error_ns or 0.0) + HOST_ERROR_NS:
        return fitted
    count = len(views)
    everyone = np.ones(count, np.bool_)
    return Clocks("host_clock", fitted.origin, np.zeros(count), np.zeros(count), HOST_ERROR_NS, HOST_ERROR_NS, everyone)


def _by_ends(views: Sequence[RankView], matched: Matched, clocks: dict[int, HostClock]) -> Clocks:
    """Fit offsets and drifts, starting from the hosts' clocks. Without usable collectives, that start is the result."""
    count = len(views)
    origin = min((v.start for v in views), default=0)
    start, same, error = host_offsets([v.rank for v in views], clocks)
    host = _hosts(views, clocks)
    largest = _largest(host)
    together = np.array([h == largest for h in host], np.bool_)
    ends = matched_times(views, matched, end=True)
    if together.any() and _host_is_refuted(views, matched, host, start, ends):
        host, together = [""] * count, np.zeros(count, np.bool_)
    usable = _tying(matched, host)
    if not usable.any():
        if same.any():
            return Clocks("host_clock", origin, start, np.zeros(count), error, error or 0.0, same)
        if together.any():
            return Clocks("host_clock", origin, start, np.zeros(count), HOST_ERROR_NS, HOST_ERROR_NS, together)
        return Clocks("none", origin, start, np.zeros(count), None, 0.0, same)
    own = (ends - origin).astype(np.float64)
    fit = _fitted(Ends.of(own, matched, usable), start)
    steps: dict[int, list[ClockStep]] = {}
    for _ in range(count):
        found = find_clock_step(views, fit.table, fit.level, matched, ends, usable)
        if found is None:
            break
        mine = matched.of(found.column)
        own[mine] -= np.where(ends[mine] >= found.step.at, found.step.size, 0.0)
        better = _fitted(Ends.of(own, matched, usable), start)
        if np.abs(better.residual).mean() > STEP_WORTH * np.abs(fit.residual).mean():
            break
        steps.setdefault(found.column, []).append(found.step)
        fit = better
    fit.offset, connected = _with_their_hosts(fit, matched, usable, host, start)
    by_host = bool((connected & ~fit.connected).any())
    scaled, error = _errors(fit, int(usable.sum()), by_host=by_host)
    reference = int(np.argmax(fit.connected))
    # The axis is the clock of the lowest connected rank, throughout the window.
    offset, drift = fit.offset - fit.offset[reference], fit.drift - fit.drift[reference]
    given = start - start[reference]
    spread = 1.4826 * float(np.median(scaled))
    if error is not None and not steps and not drift.any() and np.abs(offset - given).max() <= error:
        # A correction smaller than the scatter of the ends is not significant: keep the clocks as they were recorded.
        offset, fit.residual = given, fit.table.residuals(drift, given)
        error = _errors(fit, int(usable.sum()), by_host=by_host)[1]
    return Clocks(
        "collective_ends",
        origin,
        offset,
        drift,
        error,
        spread,
        connected,
        steps,
        _doubtful(fit, host, start, error),
    )


@dataclass(slots=True)
class _Fit:
    """Offsets (ns) and drifts that align the ends of calls."""

    table: Ends
    offset: F64
    drift: F64
    residual: F64
    level: F64
    """Residuals without drifts, because a fitted drift hides a jump."""
    connected: NDArray[np.bool_]
    parts: int
    """Number of sets of ranks that are not connected by calls."""


def _fitted(table: Ends, start: F64) -> _Fit:
    offset, connected, parts = first_guess(table, start)
    offset = settle(table, np.zeros(table.ranks), offset)
    fit = _level(table, offset, connected, parts)
    drifting = _with_drift(fit) if _may_drift(fit) else None
    return fit if drifting is None else drifting


def _level(table: Ends, offset: F64, connected: NDArray[np.bool_], parts: int) -> _Fit:
    drift = np.zeros(table.ranks)
    residual = table.residuals(drift, offset)
    return _Fit(table, offset, drift, residual, residual, connected, parts)


def _may_drift(fit: _Fit) -> bool:
    """Whether a part of the calls does not rule out that drifts improve the fit. Most clocks do not drift visibly
    within a window, and trying takes four times as long as the fit of the offsets."""
    few = fit.table.thinned(SCREENED)
    if len(few.order) > len(fit.table.order) // 2:
        return True
    fit = _level(few, fit.offset, fit.connected, fit.parts)
    return _with_drift(fit, least=0.5, close_ns=WORTH_NS / 10) is not None


def _with_drift(fit: _Fit, least: float = 1.0, close_ns: float = CLOSE_NS) -> _Fit | None:
    """Return the fit with drifts, None where they improve it by less than this part of what they must. ``close_ns`` is
    that of ``settle``."""
    table = fit.table
    tried = slopes(table, fit.residual)
    if not tried.any():
        return None
    better = settle(table, tried, fit.offset, close_ns)
    for _ in range(3):
        tried = tried + slopes(table, table.residuals(tried, better))
        better = settle(table, tried, better, close_ns)
    residual = table.residuals(tried, better)
    before, after = table.mean(np.abs(fit.residual)), table.mean(np.abs(residual))
    if before - after <= least * max(WORTH * before, WORTH_NS):
        return None
    return replace(fit, offset=better, drift=tried, residual=residual)


def _errors(fit: _Fit, calls: int, *, by_host: bool) -> tuple[F64, float | None]:
    """Return the error of each end and the 95 % error of the fit, in ns; None with at least as many unknowns as
    ends."""
    sizes = fit.table.sizes()
    # A rank is part of the median that it is compared with, which shrinks its residual by (n - 1) / n.
    scaled = np.abs(fit.residual) * sizes / (sizes - 1)
    ranks = int(np.count_nonzero(np.diff(fit.table.bounds)))
    free = len(scaled) - calls - (ranks - fit.parts) - int(np.count_nonzero(fit.drift))
    if free <= 0:
        return scaled, None
    widened = STUDENT[free - 1] if free <= len(STUDENT) else 1.0
    return scaled, max(widened * float(np.quantile(scaled, 0.95)), HOST_ERROR_NS if by_host else CERTAIN_NS)


def _hosts(views: Sequence[RankView], clocks: dict[int, HostClock]) -> list[str]:
    """Name of each rank's host, empty where unknown."""
    return [clocks[v.rank].host if v.rank in clocks else v.trace.meta.host or "" for v in views]


def _largest(host: Sequence[str]) -> str | None:
    """Name of the host with most ranks, the first of equals; None where no two ranks are known to share a host."""
    ((name, ranks),) = Counter(h for h in host if h).most_common(1) or [("", 0)]
    return name if ranks > 1 else None


def _of_hosts(host: Sequence[str]) -> dict[str, list[int]]:
    """Columns of the ranks of each named host."""
    found: dict[str, list[int]] = defaultdict(list)
    for column, name in enumerate(host):
        if name:
            found[name].append(column)
    return found


def _host_is_refuted(views: Sequence[RankView], matched: Matched, host: Sequence[str], start: F64, ends: I64) -> bool:
    """Whether calls of one host's ranks ended on one rank before they began on another, so that several clocks were
    read."""
    if not len(matched):
        return False
    begins = matched_times(views, matched, end=False)
    shift = np.round(start).astype(np.int64)[matched.column]
    first = matched.first[:-1]
    names = np.unique(np.array(host), return_inverse=True)[1].reshape(-1)[matched.column]
    alike = np.maximum.reduceat(names, first) == np.minimum.reduceat(names, first)
    alike &= np.array([bool(h) for h in host])[matched.column[first]]
    alike &= np.array([k in TOGETHER for k in matched.kind], np.bool_)
    if not alike.any():
        return False
    gap = np.maximum.reduceat(begins + shift, first) - np.minimum.reduceat(ends + shift, first)
    return bool((gap[alike] > HOST_ERROR_NS + ENDS_NS).mean() > REFUTED)


def _with_their_hosts(
    fit: _Fit, matched: Matched, usable: NDArray[np.bool_], host: Sequence[str], start: F64
) -> tuple[F64, NDArray[np.bool_]]:
    """Move ranks that only a host connects by the offset that the other ranks of that host have.

    Ranks connected by calls move together: one of them on that host suffices.

    Returns:
        Offsets in ns, and a mask of all ranks that are connected by calls or hosts.
    """
    part = np.arange(len(host))
    members = matched.of_channels()
    for channel in np.unique(matched.channel[usable]).tolist():
        joined = np.isin(part, part[members[channel]])
        part[joined] = part[joined].min()
    offset: F64 = fit.offset.copy()
    placed = fit.connected.copy()
    names = np.array(host)
    while True:
        here = {name for name in names[placed].tolist() if name}
        left = [p for p in np.unique(part[~placed]).tolist() if here & set(names[part == p].tolist())]
        if not left:
            return offset, placed
        mine = part == left[0]
        shared = here & set(names[mine].tolist())
        moved = [
            np.median((offset - start)[placed & (names == n)]) - np.median((offset - start)[mine & (names == n)])
            for n in shared
        ]
        offset[mine] += float(np.median(moved))
        placed |= mine


def _doubtful(fit: _Fit, host: Sequence[str], start: F64, error: float | None) -> list[int]:
    """Columns of ranks whose calls put their clock further from the other ranks of their host than the error allows."""
    found = []
    for _, columns in sorted(_of_hosts(host).items()):
        mine = [c for c in columns if fit.connected[c]]
        if len(mine) > 1:
            away = fit.offset[mine] - start[mine]
            away -= np.median(away)
            limit = (error or 0.0) + HOST_ERROR_NS
            found += [c for c, apart in zip(mine, away.tolist(), strict=True) if abs(apart) > limit]
    return found


def _tying(matched: Matched, host: Sequence[str]) -> NDArray[np.bool_]:
    """Select the calls whose ends show clock offsets: symmetric ones, and others where only these connect ranks."""
    usable = np.array([k in SYMMETRIC for k in matched.kind], np.bool_)
    part = np.arange(len(matched.ranks))
    members = matched.of_channels()
    for channel in np.unique(matched.channel[usable]).tolist():
        joined = np.unique(part[members[channel]])
        part[np.isin(part, joined)] = joined[0]
    for columns in _of_hosts(host).values():
        joined = np.unique(part[columns])
        part[np.isin(part, joined)] = joined[0]
    bridges = [c for c, ranks in members.items() if len(np.unique(part[ranks])) > 1]
    # In a ring each rank ends after its own neighbours, so that no two ends coincide.
    return (usable | np.isin(matched.channel, bridges)) & ~matched.partial
