"""Differences between settings, from runs that were repeated alternately.

Settings change steps by a factor, and so is their scatter proportional: logarithms are compared. They are a sum of an
effect of the setting, an effect of the round (all settings run once in each, one soon after the other, so that the
state of the machine affects all of them), and chance: a block design, solved by least squares, so that runs may be
missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rankscope.statistics.chance import discoveries, student_quantile, student_tail

__all__ = ["LEVEL", "Gain", "gains"]

LEVEL = 0.01
"""Level of the intervals, and of the share of reported settings that may be due to chance."""
LEAST_FREEDOM = 2
"""Degrees of freedom from which on the runs' own scatter is used: with one, an interval is 64 standard errors wide."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Result of one setting; times as natural logarithms of ms."""

    usual: float
    """Mean over its runs."""
    noise: float
    """Half the width of its interval."""
    change: float | None
    """Relative to the first setting; None for that itself, and if that has no run."""
    change_noise: float = 0.0
    told: bool = False


def gains(steps: Mapping[tuple[int, int], float], first: int, usual_noise: float) -> tuple[dict[int, Gain], bool]:
    """Compare settings with the first one.

    Args:
        steps: setting and repeat -> usual step of that run, ms, more than 0.
        first: the setting that the others are compared with.
        usual_noise: share by which runs of one program may differ, used if there are too few repeats.

    Returns:
        The result of each setting with a run, and whether the noise is that of the runs themselves.
    """
    if not steps:
        return {}, False
    settings, rounds = sorted({s for s, _ in steps}), sorted({r for _, r in steps})
    value = np.log(list(steps.values()))
    columns = [[s == own for s, _ in steps] for own in settings]
    with_rounds = np.array(columns + [[r == own for _, r in steps] for own in rounds[1:]], float).T
    design = with_rounds
    if np.linalg.matrix_rank(design) < design.shape[1]:  # settings without a common round
        design = np.array(columns, float).T
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ value
    freedom = len(value) - design.shape[1]
    known = freedom >= LEAST_FREEDOM
    scatter = math.sqrt(float(((value - design @ found) ** 2).sum()) / freedom) if known else 0.0
    wide = student_quantile(LEVEL / 2, freedom) if known else 0.0
    floor = math.log1p(usual_noise)
    counts = {s: sum(own == s for own, _ in steps) for s in settings}
    made: dict[int, Gain] = {}
    chances: dict[int, float] = {}
    for place, setting in enumerate(settings):
        own = [v for (s, _), v in zip(steps, value, strict=True) if s == setting]
        noise = wide * scatter / math.sqrt(counts[setting]) if known else floor
        change, change_noise = None, 0.0
        if first in counts and setting != first:
            contrast = np.zeros(design.shape[1])
            contrast[place], contrast[settings.index(first)] = 1.0, -1.0
            change = float(contrast @ found)
            error = scatter * math.sqrt(float(contrast @ inverse @ contrast))
            change_noise = wide * error if known else floor
            chances[setting] = _chance(change, error, freedom) if known else float(abs(change) <= floor)
        made[setting] = Gain(float(np.mean(own)), noise, change, change_noise)
    significant = dict(zip(chances, discoveries(list(chances.values()), LEVEL), strict=True))
    return {
        s: Gain(g.usual, g.noise, g.change, g.change_noise, significant.get(s, False)) for s, g in made.items()
    }, known


def _chance(change: float, error: float, freedom: int) -> float:
    """Return the two-sided probability that chance alone causes such a change."""
    if error <= 0:  # runs that agree exactly
        return float(change == 0)
    return 2 * student_tail(abs(change) / error, freedom)
