"""Memory of PyTorch's allocator from Kineto's ``[memory]`` events, one for each allocation and each release.

Source: ``torch/csrc/autograd/profiler_kineto.cpp``; for the meaning of the totals, ``c10/core/Allocator.h``. An event
holds the totals after it. Events of 2021 have none and are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import DeviceMemory, Steps
from rankscope.trace.interval_peaks import peaks
from rankscope.trace.kineto import numbers
from rankscope.trace.kineto.events import MEMORY, NO_MEMORY

__all__ = ["NO_SAMPLES", "device_memory", "samples"]

I64 = NDArray[np.int64]

NO_SAMPLES: I64 = np.empty((5, 0), np.int64)
"""Rows: time (ns), device, bytes of this allocation (negative: released), allocated and reserved after it."""
_HOST = 0
"""``Device Type`` of host memory (c10/core/DeviceType.h)."""


def samples(instants: list[Any]) -> I64:
    """Return the columns of the instants that concern a device's memory; rows as in :data:`NO_SAMPLES`."""
    instants = [e for e in instants if e.name == MEMORY]
    if not instants:
        return NO_SAMPLES
    args = [e.args or NO_MEMORY for e in instants]
    time, _ = numbers.nanoseconds([e.ts for e in instants])  # a double is exact enough for memory
    device, allocated, reserved, kind = (
        numbers.integers([getattr(a, name) for a in args]) for name in ("device", "allocated", "reserved", "kind")
    )
    found = np.stack((time, device, numbers.integers([a.bytes for a in args], 0), allocated, reserved))
    return found[:, (time != numbers.BAD) & (kind > _HOST) & (allocated >= 0) & (reserved >= 0)]


def device_memory(found: I64, steps: Steps) -> list[DeviceMemory]:
    """Return peaks and ends of each device; ``found`` in any order, on the clock of ``steps``."""
    found = found[:, np.argsort(found[0], kind="stable")]
    memory = []
    for device in np.unique(found[1]).tolist():
        time, _, size, allocated, reserved = found[:, found[1] == device]
        levels = np.concatenate((allocated[:1] - size[:1], allocated))  # with the size before the first event
        memory.append(
            DeviceMemory(
                device=device,
                peak_allocated=int(levels.max()),
                peak_reserved=int(reserved.max()),
                end_allocated=int(allocated[-1]),
                end_reserved=int(reserved[-1]),
                step_peaks=peaks(time, levels, steps.start, steps.end),
            )
        )
    return memory
