"""What-if replays for a user's assumptions: the recorded steps with other work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.evidence.combined_gains import level
from rankscope.analysis.gains.work_gains import less_device_work, operator_shares
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.windows.analyse import WindowResult

__all__ = ["replayable", "saved_ms"]

F64 = NDArray[np.float64]


def replayable(windows: Sequence[WindowResult]) -> list[WindowResult]:
    """Return the windows with a replay that is trusted."""
    return [w for w in windows if w.replay is not None and w.refused is None and w.replay.steps]


def saved_ms(
    windows: Sequence[WindowResult], ranks: Sequence[int], network: float, host: float, scale: Mapping[str, float]
) -> list[float]:
    """Return by how much each recorded step would be shorter, ms, with all of these changes together.

    Args:
        windows: windows that can be replayed.
        ranks: ranks whose work is reduced to the level of their peers.
        network: factor by which transfers are faster; infinite for none at all.
        host: the same for the hosts' work.
        scale: operator -> factor for the time of its kernels.
    """
    found: list[float] = []
    for window in windows:
        replay = window.replay
        assert replay is not None
        graph = replay.graph
        work = level(window, graph.work, ranks)
        work = np.where(graph.label == Work.TRANSFER, work / network, work)
        work = np.where(graph.label == Work.HOST, work / host, work)
        for operator, factor in scale.items():
            shares = [operator_shares(view, window, column, operator) for column, view in enumerate(window.views)]
            work = less_device_work(replay, work, [(1.0 - factor) * share for share in shares])
        found += (replay.gains(work) / 1e6).tolist()
    return found
