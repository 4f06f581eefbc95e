"""Expert parallel jobs: what their all-to-alls cost a step, and what equal work on all ranks would gain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.faster import gain_ms, without_calls
from rankscope.analysis.gains.work_gains import priced
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.changes import ExpertParallel

__all__ = ["expert_parallel", "without_exchanges"]

F64 = NDArray[np.float64]

EXPERTS = "experts"
"""The kind of mesh in which ranks exchange tokens by all-to-alls."""


def expert_parallel(windows: Sequence[WindowResult]) -> ExpertParallel | None:
    """Return what these calls cost; None if there are none."""
    if not any(window.mesh == EXPERTS for window in priced(windows)):
        return None
    return ExpertParallel(
        high_ms=gain_ms(windows, without_exchanges),
        others_ms=gain_ms(windows, lambda window, work: without_calls(window, work, ~_exchanges(window))),
        balanced_ms=gain_ms(windows, _balanced),
    )


def without_exchanges(window: WindowResult, work: F64) -> F64:
    """Return the work per edge if all-to-alls took no time."""
    return without_calls(window, work, _exchanges(window))


def _balanced(window: WindowResult, work: F64) -> F64:
    return window.replay.balanced() if window.replay is not None else work


def _exchanges(window: WindowResult) -> NDArray[np.bool_]:
    return np.array([kind == "all_to_all" for kind in window.matched.kind], np.bool_)
