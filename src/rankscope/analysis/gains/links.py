"""Calls within a host that stay far below what the link between its devices can give: a fault of the link or of how it
is used, not of the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.calls import SameCalls, beside_compute, same_calls
from rankscope.analysis.gains.faster import gain_ms, with_faster_calls
from rankscope.analysis.gains.work_gains import priced
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.device_links import Link, link_between
from rankscope.records.changes import SlowLink
from rankscope.records.rows import RankSummary

__all__ = ["slow_link"]

F64 = NDArray[np.float64]
Slow = tuple[SameCalls, Link, float]

ENOUGH = 0.7
"""Share of the data sheet's rate. NCCL reaches 75 to 85 % of it with large messages."""
LONG_NS = 500_000
"""Calls that take at least this long at the link's rate, so that the latency of a call, some ten microseconds, is a few
per cent of it whatever the link."""
FEWEST = 5
FAST = 0.9
"""Quantile of the calls' rates: if even the fastest of them are slow, no delay of a single call is the reason."""
COMPUTING = 0.1
"""Largest share of a call during which a rank computes: kernels use the same memory and processors."""


def slow_link(windows: Sequence[WindowResult], ranks: Sequence[RankSummary]) -> SlowLink | None:
    """Return the group whose calls lose most; None where no link is known, or all calls come near its rate."""
    by_rank = {row.rank: row for row in ranks}
    slow = {id(window): _slow(window, by_rank) for window in priced(windows)}
    found = [one for of_window in slow.values() for one in of_window]
    if not found:
        return None
    calls, link, rate = max(found, key=lambda one: float(one[0].transfer.sum()))
    worst = SlowLink(
        ranks=list(calls.group.ranks),
        kind=calls.kind,
        link=link.name,
        link_gb_s=link.gb_s,
        best_gb_s=rate,
        calls=len(calls.call),
    )
    worst.low_ms, worst.high_ms = (
        gain_ms(windows, lambda w, work, share=share: _at_rate(w, work, slow[id(w)], share))  # type: ignore[misc]
        for share in (ENOUGH, 1.0)
    )
    return worst


def _slow(window: WindowResult, ranks: Mapping[int, RankSummary]) -> list[Slow]:
    """Return the calls of a group and kind, the link between its ranks, and the rate that the fastest of them reach,
    GB/s; of those whose calls are slow."""
    found = []
    for calls in same_calls(window):
        link = link_between(calls.group.ranks, ranks)
        if link is None:
            continue
        alone = (calls.moved / link.gb_s >= LONG_NS) & (beside_compute(window, calls.call) <= COMPUTING)
        if alone.sum() < FEWEST:
            continue
        rate = float(np.quantile(calls.moved[alone] / calls.transfer[alone], FAST))
        if rate < ENOUGH * link.gb_s:
            found.append((calls, link, rate))
    return found


def _at_rate(window: WindowResult, work: F64, slow: Sequence[Slow], share: float) -> F64:
    factor = np.ones(len(window.matched))
    for calls, link, _ in slow:
        long = calls.moved / link.gb_s >= LONG_NS
        factor[calls.call[long]] = np.minimum(calls.moved / (share * link.gb_s) / calls.transfer, 1.0)[long]
    return with_faster_calls(window, work, factor)
