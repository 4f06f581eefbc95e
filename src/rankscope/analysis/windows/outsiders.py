"""Ranks whose trace cannot be compared with the others', although it was read: few of many, which are left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.alignment import HOST_ERROR_NS, Clocks
from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import TOGETHER, Matched
from rankscope.analysis.matching.pair_clocks import ENDS_NS
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView
from rankscope.trace.names import DEVICE_WORK

__all__ = ["LAUNCHED", "NO_LAUNCHES", "foreign", "launched", "unlaunched"]

LAUNCHED = 0.5
"""Least share of device work with a known launch (work queued before the window has none): only such is replayed."""
NO_LAUNCHES = "most device work has no recorded launch"
ENOUGH = 4
"""Number of ranks from which the others show which of them does not belong to them."""
FEW = 0.05
"""Largest share of the ranks that are left out for their calls; one of them in any case. If more of them differ, what
is wrong concerns the job."""
IMPOSSIBLE = 0.05
"""Share of a rank's calls that cannot be those of the others, beyond which it is left out: a clock that was fitted to
its other calls may be wrong in some."""
_SCATTER = 3.0
"""Multiple of the typical difference of ends up to which two ends may be equal."""


def launched(view: RankView) -> float:
    """Return the share of device work whose launch is known."""
    launch = view.trace.events.launch[one_of(view.kind, DEVICE_WORK)]
    return float((launch >= 0).mean()) if len(launch) else 1.0


def unlaunched(views: Sequence[RankView]) -> dict[int, str]:
    """Return column -> reason of the ranks whose device work has no launches, if most ranks' work has."""
    lacking = [c for c, v in enumerate(views) if v.device and launched(v) < LAUNCHED]
    most = len(views) - len(lacking) > max(len(lacking), 1)
    return dict.fromkeys(lacking, f"{NO_LAUNCHES} in its trace") if most else {}


def foreign(views: Sequence[RankView], matched: Matched, clocks: Clocks, waits: Waits) -> dict[int, str]:
    """Return column -> reason of the few ranks whose calls are not those of the others.

    Either a rank recorded none of the calls in which it takes part by the others' records, but other ones. Or its calls
    ended before another rank began them, or began after the end, when no other rank's did: its trace is of another time
    or another run, or its times are damaged.
    """
    if len(views) < ENOUGH or not len(matched):
        return {}
    found = dict.fromkeys(_absent(views, matched), "none of its calls is one in which the other ranks recorded it")
    found |= {
        c: f"{100 * share:.0f} % of its calls ended before another rank began them, or began when they had ended: its "
        "trace is of another run, or its times are wrong"
        for c, share in enumerate(_impossible(matched, clocks, waits).tolist())
        if share > IMPOSSIBLE
    }
    return found if len(found) <= max(1, int(FEW * len(views))) else {}


def _absent(views: Sequence[RankView], matched: Matched) -> list[int]:
    lone = [c for c, v in enumerate(views) if not len(matched.of(c)) and len(v.trace.collectives)]
    used = {channel.ranks for channel in matched.channels} if lone else set()
    return [c for c in lone if any(views[c].rank in ranks for ranks in used)]


def _impossible(matched: Matched, clocks: Clocks, waits: Waits) -> NDArray[np.float64]:
    """Return for each rank the share of its calls in which some rank arrived after another's end, and its own end is
    not that of most members."""
    allowed = max(HOST_ERROR_NS + ENDS_NS, _SCATTER * clocks.spread_ns)
    asked = np.array([kind in TOGETHER for kind in matched.kind], np.bool_) & ~matched.partial & (matched.size > 2)
    count, wrong = np.zeros(len(matched.ranks)), np.zeros(len(matched.ranks))
    for members in matched.by_size(asked):
        arrival, end, column = waits.arrival[members], waits.end[members], matched.column[members]
        broken = arrival.max(axis=1) - end.min(axis=1) > allowed
        apart = np.abs(end - np.median(end, axis=1, keepdims=True)) > allowed
        np.add.at(count, column.ravel(), 1)
        np.add.at(wrong, column[broken[:, None] & apart], 1)
    return wrong / np.maximum(count, 1)
