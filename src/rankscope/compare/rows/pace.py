"""How fast a device went: what all its kernels have in common, from step to step and between two runs.

Power and temperature move the clock of a device, and with it its kernels, by several percent, some more than others.
That is no change of any one of them. So of a kernel's change counts what is left when it is taken out how it goes with
the others (analysis of covariance: Fisher, 1932), and its scatter is what is left of that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from rankscope.compare.rows.uses import Key, Use

__all__ = ["Pace", "Scatter", "pace_of", "scatter_of"]

FEWEST = 5
"""Kinds of kernels; what fewer have in common may be what happened to one of them."""
LEAST_SHARE = 0.005
"""Of all compute: shorter kinds follow the clock of the trace more than that of the device."""
STILL = 0.001
"""A pace that moves by less tells little of how a kernel goes with it; then it is taken to go as the others do."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one rank in both runs: step -> how long its kernels took, as logarithms on a zero that both runs share."""

    steps: tuple[Mapping[int, float], Mapping[int, float]] = field(default_factory=lambda: ({}, {}))

    @property
    def change(self) -> float:
        """From the older run to the newer one; 0 where it is not known."""
        before, after = self.steps
        return fmean(after.values()) - fmean(before.values()) if before and after else 0.0


def pace_of(before: Mapping[Key, Use], after: Mapping[Key, Use]) -> Pace:
    """The pace of a rank, where enough kinds ran beside no communication in all steps of both runs."""
    sides = [_large(before), _large(after)]
    kinds = sorted(sides[0].keys() & sides[1].keys())
    steps = [max((side[key].steps for key in kinds), key=len, default=[]) for side in sides]
    kinds = [key for key in kinds if all(side[key].steps == own for side, own in zip(sides, steps, strict=True))]
    if len(kinds) < FEWEST or not all(steps):
        return Pace()
    logs = [[side[key].logs for key in kinds] for side in sides]
    zero = [(fmean(a) + fmean(b)) / 2 for a, b in zip(*logs, strict=True)]
    found = [
        {
            step: median(own[place] - z for own, z in zip(of_side, zero, strict=True))
            for place, step in enumerate(numbers)
        }
        for of_side, numbers in zip(logs, steps, strict=True)
    ]
    return Pace((found[0], found[1]))


@dataclass(frozen=True, slots=True)
class Scatter:
    """Of one kind of work from step to step."""

    variance: float = 0.0
    """Of the logarithm of its length, beside the pace."""
    freedom: float = math.inf
    """Degrees of freedom that it is known by."""
    slope: float = 1.0
    """By how much it goes with the pace: power limits those most that need most."""
    moved: float = math.inf
    """By how much the pace moved, as a sum of squares: what the slope is known by."""

    def of_change(self, steps: tuple[int, int], pace: Pace) -> float:
        """Variance of a change of the logarithm, from so many steps of both runs."""
        before, after = steps
        return self.variance * (1 / before + 1 / after + pace.change**2 / self.moved)


def scatter_of(sides: Sequence[Mapping[int, Use]], paces: Mapping[int, Pace]) -> Scatter:
    """Of all ranks and both runs together, as each has only a few steps.

    Args:
        sides: of each run the kind's use on each rank.
        paces: of each rank.
    """
    xx = xy = yy = 0.0
    freedom = 0
    for side, by_rank in enumerate(sides):
        for rank, use in by_rank.items():
            if use.usual_us is None or len(use.steps) < 2:
                continue
            pace = paces[rank].steps[side] if rank in paces else {}
            x, y = [pace.get(step, 0.0) for step in use.steps], use.logs
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
