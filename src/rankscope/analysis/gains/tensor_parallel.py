"""What the calls of tensor parallel groups cost a step, and what other groups would cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.calls import same_calls
from rankscope.analysis.gains.faster import gain_ms, with_faster_calls, without_calls
from rankscope.analysis.gains.parallel_groups import calls_of, groups_named, is_tensor
from rankscope.analysis.gains.work_gains import priced
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.device_links import link_of
from rankscope.records.changes import Gain, TensorParallel
from rankscope.records.rows import RankSummary

__all__ = ["tensor_parallel", "without_transfers"]

F64 = NDArray[np.float64]

RATES = (0.4, 1.0)
"""Shares of a link's rate that NCCL reaches with messages of some ten megabytes, and at best."""


def tensor_parallel(windows: Sequence[WindowResult], ranks: Sequence[RankSummary]) -> TensorParallel | None:
    """Return what these groups cost; None if no group has such a name, or nothing can be replayed."""
    groups = [group for window in priced(windows) for group in groups_named(window, is_tensor)]
    if not groups:
        return None
    by_rank = {row.rank: row for row in ranks}
    first = groups[0]
    spread = [{by_rank[r].host for r in group if r in by_rank} for group in groups]
    link = link_of(by_rank[first[0]].device if first[0] in by_rank else None)
    hosts = max((len(hosts) for hosts in spread if None not in hosts), default=0)
    return TensorParallel(
        size=len(first),
        ranks=list(first),
        hosts=hosts,
        high_ms=gain_ms(windows, without_transfers),
        halved_ms=gain_ms(windows, _halved),
        others_ms=gain_ms(windows, lambda window, work: without_calls(window, work, ~calls_of(window, is_tensor))),
        link=link.name if link is not None else "",
        within=_within(windows, link.gb_s) if link is not None and hosts > 1 else None,
    )


def without_transfers(window: WindowResult, work: F64) -> F64:
    """Return the work per edge if transfers of these groups took no time."""
    return without_calls(window, work, calls_of(window, is_tensor))


def _within(windows: Sequence[WindowResult], gb_s: float) -> Gain:
    low, high = (gain_ms(windows, lambda w, work, rate=rate: _at_rate(w, work, rate * gb_s)) for rate in RATES)  # type: ignore[misc]
    return Gain(low_ms=low, high_ms=high)


def _at_rate(window: WindowResult, work: F64, gb_s: float) -> F64:
    """Return the work per edge if these calls moved their bytes at this rate; none becomes longer."""
    factor, mine = np.ones(len(window.matched)), calls_of(window, is_tensor)
    for calls in same_calls(window):
        if mine[calls.call[0]]:
            factor[calls.call] = np.minimum(calls.moved / gb_s / calls.transfer, 1.0)
    return with_faster_calls(window, work, factor)


def _halved(window: WindowResult, work: F64) -> F64:
    """Return the work per edge with groups of half the size and twice as many replicas, for the same batch of the job.

    A message of a group then has half the size, and its factor on the bus is that of half the ranks. All other calls,
    of gradients and parameters, move twice as much, because a rank holds twice the parameters. The ranks' own work
    remains as much.
    """
    factor = np.full(len(window.matched), 2.0)
    mine = calls_of(window, is_tensor)
    for channel, group in enumerate(window.matched.channels):
        size = len(group.ranks)
        # the share of a message that passes the bus is (n - 1) / n, or twice that: their ratio is the same
        less = 0.5 * (1 - 2 / size) / (1 - 1 / size) if size > 2 else 0.0
        factor[mine & (window.matched.channel == channel)] = less
    return with_faster_calls(window, work, factor)
