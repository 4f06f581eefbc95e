"""Kernels that may communicate under a name that no known library uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from rankscope.analysis.rank.select import distinct, one_of
from rankscope.analysis.rank.view import RankView
from rankscope.trace.names import Kind, function, is_known_compute

__all__ = ["unknown_kernels"]

LEAST_SHARE = 0.01
"""Share of a rank's window; kernels with less time do not change a displayed number of the report."""

MOST = 3


def unknown_kernels(views: Sequence[RankView]) -> list[str]:
    """Return notes on kernels that run on streams of their own and are neither known communication nor known compute.

    Compute runs on the stream of other compute; communication has a stream of its own. A kernel with an unknown name
    that shares its streams with no known compute may be communication, and counts as compute.
    """
    longest: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, -1))
    for view in views:
        for name, share in _alone(view).items():
            longest[name] = max(longest[name], (share, view.rank))
    listed = sorted(longest.items(), key=lambda item: -item[1][0])
    return [
        f"kernel {function(name)[:80] or name[:80]} has a stream to itself ({100 * share:.1f} % of the window of rank "
        f"{rank}) and a name that no library is known for: it counts as compute, and may be communication"
        for name, (share, rank) in listed[:MOST]
        if share >= LEAST_SHARE
    ]


def _alone(view: RankView) -> dict[str, float]:
    """Return the share of the window by name."""
    events, span = view.trace.events, view.end - view.free
    rows = np.flatnonzero(view.kind == Kind.COMPUTE)
    if not view.device or span <= 0 or not len(rows):
        return {}
    names, stream = events.name[rows], events.stream[rows]
    known = one_of(names, [c for c in distinct(names).tolist() if is_known_compute(view.trace.strings[c])])
    if known.all() or not known.any():
        return {}  # without known compute, streams of compute cannot be recognised
    shared = one_of(stream, distinct(stream[known]))
    found = {}
    for code in distinct(names[~shared]).tolist():
        mine = names == code
        if not (mine & shared).any():
            found[view.trace.strings[code]] = float(events.duration[rows[mine]].sum()) / span
    return found
