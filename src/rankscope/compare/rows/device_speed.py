"""Pace of a device: the common change of all its kernels, from step to step and between two runs.

Power and temperature change the clock of a device, and with it the duration of its kernels, by several per cent, and of
some kernels more than of others. That is not a change of any one of them. So the change of a kernel counts without the
part that follows from its dependence on the others (analysis of covariance: Fisher, 1932), and so does its scatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from rankscope.compare.rows.uses import Key, Use

__all__ = ["DeviceSpeed", "Scatter", "device_speed", "scatter_of"]

FEWEST = 5
"""Number of kinds of kernels; a common change of fewer may be a change of one of them."""
LEAST_SHARE = 0.005
"""Share of all compute; shorter kinds follow the clock of the trace more than that of the device."""
STILL = 0.001
"""If the pace varies by less, it shows little of how a kernel depends on it; the kernel is then assumed to follow the
others."""


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """Pace of one rank in both runs: step -> log duration of its kernels, relative to an origin that both runs
    share."""

    steps: tuple[Mapping[int, float], Mapping[int, float]] = field(default_factory=lambda: ({}, {}))

    @property
    def change(self) -> float:
        """Change from the older run to the newer one; 0 if unknown."""
        before, after = self.steps
        return fmean(after.values()) - fmean(before.values()) if before and after else 0.0


def device_speed(before: Mapping[Key, Use], after: Mapping[Key, Use]) -> DeviceSpeed:
    """Return the pace of a rank, from the kinds without overlap with communication in all steps of both runs, if
    enough."""
    sides = [_large(before), _large(after)]
    kinds = sorted(sides[0].keys() & sides[1].keys())
    steps = [max((side[key].steps for key in kinds), key=len, default=[]) for side in sides]
    kinds = [key for key in kinds if all(side[key].steps == own for side, own in zip(sides, steps, strict=True))]
    if len(kinds) < FEWEST or not all(steps):
        return DeviceSpeed()
    logs = [[side[key].logs for key in kinds] for side in sides]
    zero = [(fmean(a) + fmean(b)) / 2 for a, b in zip(*logs, strict=True)]
    found = [
        {
            step: median(own[place] - z for own, z in zip(of_side, zero, strict=True))
            for place, step in enumerate(numbers)
        }
        for of_side, numbers in zip(logs, steps, strict=True)
    ]
    return DeviceSpeed((found[0], found[1]))


@dataclass(frozen=True, slots=True)
class Scatter:
    """Scatter of one kind of work from step to step."""

    variance: float = 0.0
    """Variance of its log duration, without the part explained by the pace."""
    freedom: float = math.inf
    """Degrees of freedom of the variance."""
    slope: float = 1.0
    """Dependence on the pace: a power limit slows those kernels most that need most power."""
    moved: float = math.inf
    """Variation of the pace, as a sum of squares, which determines the precision of the slope."""

    def of_change(self, steps: tuple[int, int], speed: DeviceSpeed) -> float:
        """Return the variance of a change of the log duration, for these numbers of steps in both runs."""
        before, after = steps
        return self.variance * (1 / before + 1 / after + speed.change**2 / self.moved)


def scatter_of(sides: Sequence[Mapping[int, Use]], speeds: Mapping[int, DeviceSpeed]) -> Scatter:
    """Return the scatter over all ranks and both runs together, because each has only a few steps.

    Args:
        sides: for each run, the kind's use on each rank.
        paces: of each rank.
    """
    xx = xy = yy = 0.0
    freedom = 0
    for side, by_rank in enumerate(sides):
        for rank, use in by_rank.items():
            if use.usual_us is None or len(use.steps) < 2:
                continue
            speed = speeds[rank].steps[side] if rank in speeds else {}
            x, y = [speed.get(step, 0.0) for step in use.steps], use.logs
            middle_x, middle_y = fmean(x), fmean(y)
            xx += sum((value - middle_x) ** 2 for value in x)
            yy += sum((value - middle_y) ** 2 for value in y)
            xy += sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
            freedom += len(y) - 1
    if not freedom:
        return Scatter()
    prior = freedom * STILL**2
    slope = (xy + prior) / (xx + prior)
    left = max(freedom - 1, 1) if xx else freedom
    return Scatter(max(yy - 2 * slope * xy + slope**2 * xx, 0.0) / left, left, slope, xx + prior)


def _large(uses: Mapping[Key, Use]) -> dict[Key, Use]:
    whole = sum(use.total_ms for use in uses.values())
    return {key: u for key, u in uses.items() if u.usual_us is not None and u.total_ms >= LEAST_SHARE * whole}
