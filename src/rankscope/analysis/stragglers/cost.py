"""Determine which rank costs the job step time, by replay and not by adding up waits.

A rank's *concentrated excess* is its work in segments where it does clearly more than its peers. On the host that is
more than ``HOST_RATIO`` times the peers' median (after the discount for uniform slowness), or an excess that is mostly
explained by a named attribute; on the device it is more than ``DEVICE_RATIO`` times. A replay with these segments at
the peers' median gives the gain of each step. A rank that is slightly slower everywhere has no excess in this sense,
because no single place in its code could be improved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.longest_path import Changed
from rankscope.analysis.replay.what_if import Replay, gains_of_each
from rankscope.analysis.stragglers.profile import ATTRIBUTES, Profile, work_difference
from rankscope.causes.table import NOISY
from rankscope.statistics.medians import median_along
from rankscope.statistics.thresholds import LEAST_COST, LEAST_EXCESS, LEAST_EXCESS_NS, SCREENED, UNIFORM_LIMIT

__all__ = ["RankCost", "judge_ranks", "screen", "sign_flip"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

HOST_RATIO = 1.5
"""Ratio from which a host segment counts as excess. Healthy segments reach 1.45 (measured on recorded jobs)."""
DEVICE_RATIO = 1.05
"""Ratio from which a device segment counts as excess. Device times vary less than host times. Kernels that overlap a
waiting collective take up to 1.4 times as long, but the replay shows that this costs nothing."""
NAMED_SHARE = 0.6
"""Share of a segment's excess that, if named attributes explain it, makes it count whatever its ratio."""
BALANCED = 0.5
"""Where records were lost, a rank that has more device work in some segments and less in others, so that less than this
share of the difference is left in all, does the same work: a lost call lets its segments begin elsewhere."""
JOINT_EXPLAINED = 0.7
"""Share of its excess that a rank's cause must explain where several ranks may be stragglers. What several ranks gain
together is no evidence against a single one."""


@dataclass(slots=True)
class RankCost:
    """Result of the window for one rank. Times in ns."""

    gains: F64
    """Gain per step."""
    excess: float = 0.0
    explained: dict[str, float] = field(default_factory=dict)
    uniform: float = 1.0
    factor: F64 | None = None
    """Factors that remove its excess: host and device work per segment, shape (4, S), indexed by :class:`Work`."""
    beside: list[int] = field(default_factory=list)
    """Columns of other stragglers whose excess is removed as well where ``gains`` holds the cost of this one."""
    together: F64 | None = None
    """Gain per step if the excess of all of these and of this rank is removed; None for a single rank."""
    error: float | None = None
    """Half width of the 95 % confidence interval of the mean gain, where the rank's whole work was compared with its
    peers'; None where thresholds on its segments decided."""


def screen(matched: Matched, waits: Waits, step_ns: float, steps: int) -> I64:
    """Return the columns of the ranks that may cost the job time.

    Removing a rank's excess gains no more than the others wait while it is the last to arrive.
    """
    if not len(matched):
        return np.empty(0, np.int64)
    waited = np.add.reduceat(waits.wait, matched.first[:-1]) / np.maximum(matched.size - 1, 1)
    caused = np.bincount(waits.last, waited, len(matched.ranks))
    return np.flatnonzero(caused >= SCREENED * step_ns * max(steps, 1)).astype(np.int64)


def judge_ranks(
    replay: Replay,
    views: Sequence[RankView],
    profiles: Sequence[Profile],
    step_ns: float,
    comparable: NDArray[np.bool_],
    sound: NDArray[np.bool_],
    columns: I64,
) -> list[RankCost]:
    """Return one :class:`Lateness` per rank; only the given columns are examined.

    Two ranks that are late at the same place hide each other. Where several have an excess with a clear cause, the gain
    of each is also computed with the excess of the others removed.

    Args:
        replay: the replay of the window.
        views: the ranks.
        profiles: their attributes per segment.
        step_ns: the job's step time, in ns.
        comparable: which segments a rank and its peers recorded completely, shape (R, S).
        sound: which of these segments lost no device record, shape (R, S).
        columns: ranks to examine.
    """
    found = [RankCost(np.zeros(replay.steps)) for _ in views]
    for column in columns.tolist():
        found[column] = _judge_rank(replay, column, views, profiles, step_ns, comparable[column], sound[column])
    at_fault = [c for c, late in enumerate(found) if _clear(late, step_ns * replay.steps)]
    if len(at_fault) < 2:
        return found
    together, own = gains_of_each(at_fault, lambda some: replay.gains(_mended(replay, found, some)))
    for column, gains in zip(at_fault, own, strict=True):
        if gains.sum() > found[column].gains.sum() + LEAST_EXCESS_NS:
            found[column].gains, found[column].together = gains, together
            found[column].beside = [c for c in at_fault if c != column]
    return found


def _clear(late: RankCost, span: float) -> bool:
    if late.factor is None or late.excess < LEAST_COST * span or not late.explained:
        return False
    cause = max(late.explained, key=lambda c: late.explained[c])
    return cause not in NOISY and late.explained[cause] >= JOINT_EXPLAINED * late.excess


def _mended(replay: Replay, found: Sequence[RankCost], columns: Sequence[int]) -> Changed:
    return replay.scaled({c: factor for c in columns if (factor := found[c].factor) is not None})


def _judge_rank(
    replay: Replay,
    column: int,
    views: Sequence[RankView],
    profiles: Sequence[Profile],
    step_ns: float,
    comparable: NDArray[np.bool_],
    sound: NDArray[np.bool_],
) -> RankCost:
    """Return the gain per step without the rank's concentrated excess, and what explains the excess.

    Only segments that it and all its peers recorded completely are compared.
    """
    peers = [p for p in replay.peers[column] if p != column]
    nothing = RankCost(np.zeros(replay.steps))
    if not peers:
        return nothing
    segments = replay.segments
    own_host, own_device = segments.host[column], segments.device[column]
    other_host, other_device = (median_along(work[peers], axis=0)[0] for work in (segments.host, segments.device))
    named = np.zeros(len(own_host))
    for name in ATTRIBUTES:
        mine = profiles[column].length[name]
        some = np.flatnonzero(mine > 0)  # most causes are in few segments
        theirs = median_along([profiles[p].length[name][some] for p in peers], axis=0)[0]
        named[some] += np.maximum(mine[some] - theirs, 0.0)
    even = replay.uniform(column, named)
    # Beyond the limit, the machine is slow altogether, and all of the difference counts as excess.
    uniform, ratio = (even, HOST_RATIO) if even <= UNIFORM_LIMIT else (1.0, UNIFORM_LIMIT)
    before_last = comparable & (np.arange(len(own_host)) < segments.count[column])
    least = max(LEAST_EXCESS * step_ns / (1.0 if even <= UNIFORM_LIMIT else 4.0), LEAST_EXCESS_NS)

    excess = own_host - other_host
    late_host = before_last & (own_host - uniform * other_host > least)
    late_host &= (own_host > ratio * uniform * other_host) | (named > NAMED_SHARE * excess)
    late_device = before_last & sound & (own_device - other_device > least) & (own_device > DEVICE_RATIO * other_device)
    if bool((comparable & ~sound).any()):  # records were lost
        more = own_device - other_device
        if more[before_last & sound].sum() < BALANCED * more[late_device].sum():
            late_device[:] = False
    late = late_host | late_device
    if not late.any():
        nothing.uniform = even
        return nothing
    # A late segment is reduced as a whole, because its launches and its kernels belong together.
    factor = np.ones((4, len(own_host)))
    factor[Work.HOST, late] = _lowered(other_host * uniform, own_host)[late]
    factor[Work.DEVICE, late & sound] = _lowered(other_device, own_device)[late & sound]
    gains = replay.gains(replay.scaled({column: factor}))
    more_host = np.where(late, np.maximum(own_host - uniform * other_host, 0.0), 0.0)
    more_device = np.where(late & sound, np.maximum(own_device - other_device, 0.0), 0.0)
    total = float(np.maximum(more_host, more_device).sum())
    return RankCost(
        gains=gains,
        excess=total,
        explained=_explain(column, peers, views, profiles, np.flatnonzero(late), total),
        uniform=even,
        factor=factor,
    )


def _lowered(target: F64, own: F64) -> F64:
    return np.minimum(np.divide(target, own, out=np.ones_like(own), where=own > 0), 1.0)


def _explain(
    column: int, peers: list[int], views: Sequence[RankView], profiles: Sequence[Profile], late: I64, total: float
) -> dict[str, float]:
    """Return cause -> share of the excess in ns, each at most the whole excess."""
    found: dict[str, float] = {}
    for name in ATTRIBUTES:
        theirs = median_along([profiles[p].length[name][late] for p in peers], axis=0)[0]
        found[name] = float(np.maximum(profiles[column].length[name][late] - theirs, 0.0).sum())
    middle = _middle_peer(peers, profiles, late)
    found |= work_difference(views[column], views[middle], profiles[column], profiles[middle], late)
    syncs = profiles[column].count["syncs"][late].sum()
    others = np.median([profiles[p].count["syncs"][late].sum() for p in peers])
    if syncs >= 3 * others + 5 * len(late) and found.get("slow_compute", 0.0) == 0.0:
        # Each synchronisation drains the launch queue, so that the launches around it are no longer hidden.
        rest = total - sum(found[n] for n in ATTRIBUTES if n != "host_sync")
        found["host_sync"] = max(found["host_sync"], rest)
    known = sum(found.values())
    if known < 0.5 * total:
        ops = profiles[column].count["ops"][late].sum()
        same = np.median([profiles[p].count["ops"][late].sum() for p in peers])
        if abs(ops - same) <= 0.05 * max(same, 1.0):
            found["launch_bound"] = total - known
    return {k: min(v, total) for k, v in sorted(found.items(), key=lambda item: -item[1]) if v > 0}


def _middle_peer(peers: list[int], profiles: Sequence[Profile], late: I64) -> int:
    ops = [float(profiles[p].count["ops"][late].sum()) for p in peers]
    return peers[int(np.argsort(ops)[len(ops) // 2])]


def sign_flip(gains: F64, *, seed: int = 0) -> float | None:
    """One-sided p-value of the mean gain under random signs (sign-flip test); exact for up to 12 steps."""
    if not len(gains) or gains.sum() <= 0:
        return None
    if len(gains) <= 12:
        signs = np.array(np.meshgrid(*[[1.0, -1.0]] * len(gains))).reshape(len(gains), -1)
    else:
        signs = np.random.default_rng(seed).choice([1.0, -1.0], (len(gains), 4096))
        signs[:, 0] = 1.0
    return float((gains @ signs >= gains.sum() - 1e-6).mean())
