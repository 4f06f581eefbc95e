"""Twice the batch on each rank of a data parallel job: gradients and parameters move as often for twice the work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.work_gains import group_shares, less_device_work, priced
from rankscope.analysis.operators.groups import OPTIMIZER, SHARDING
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.changes import DoubledBatch

__all__ = ["doubled_batch"]

F64 = NDArray[np.float64]

WRAPPERS = {"ddp", "fsdp1", "fsdp2"}
"""What shows that ranks are replicas of one model, whose calls do not depend on the size of the batch."""
REPLICAS = "one group"
"""The kind of mesh in which all ranks are such replicas."""


def doubled_batch(windows: Sequence[WindowResult], step_ms: float | None, uses: Sequence[str]) -> DoubledBatch | None:
    """Return the gain per step of the recorded batch; None unless the job is data parallel only, and has devices.

    Two steps are compared with one of twice the work. Kernels take twice as long, but for the optimizer's and
    those that copy parameters. Hosts launch as many of them: they take as long, in the worst case twice as long.
    """
    known = priced(windows)
    if not known or not step_ms or not WRAPPERS & set(uses):
        return None
    if any(window.mesh != REPLICAS or not all(view.device for view in window.views) for window in known):
        return None
    best, worst = (step_ms + _longer_ms(known, host) for host in (1.0, 2.0))
    return DoubledBatch(low_ms=max(step_ms - worst / 2, 0.0), high_ms=max(step_ms - best / 2, 0.0), twice_ms=best)


def _longer_ms(windows: Sequence[WindowResult], host: float) -> float:
    """Return by how much a step becomes longer with twice the batch, ms; ``host``: factor of the hosts' work."""
    total = steps = 0.0
    for window in windows:
        assert window.replay is not None
        total -= float(window.replay.gains(_twice(window, host)).sum())
        steps += window.replay.steps
    return total / max(steps, 1.0) / 1e6


def _twice(window: WindowResult, host: float) -> F64:
    assert window.replay is not None
    graph = window.replay.graph
    more = []
    for column, view in enumerate(window.views):
        shares = group_shares(view, window, column)
        once = sum((shares[name] for name in (OPTIMIZER, SHARDING) if name in shares), np.zeros(window.plan.size))
        more.append(once - 1.0)
    work = less_device_work(window.replay, graph.work, more)
    return np.where(graph.label == Work.HOST, work * host, work)
