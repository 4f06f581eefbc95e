"""The step each event belongs to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import Category, Events, Steps

__all__ = ["step_of"]

_DEVICE = (Category.KERNEL, Category.GPU_MEMCPY, Category.GPU_MEMSET, Category.GPU_USER_ANNOTATION, Category.CUDA_SYNC)


def step_of(events: Events, steps: Steps) -> NDArray[np.int32]:
    """Return the step of each event: that of its launch (GPU), or the one that contains its start (host). -1 for
    none."""
    step = np.full(len(events), -1, np.int32)
    if not len(steps):
        return step
    at = np.searchsorted(steps.start, events.start, side="right") - 1
    inside = (at >= 0) & (events.start < steps.end[at.clip(0)])
    device = np.isin(events.category, _DEVICE)
    step[inside & ~device] = at[inside & ~device]
    launched = np.flatnonzero(events.launch >= 0)
    step[launched] = step[events.launch[launched]]
    return step
