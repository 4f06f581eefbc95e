"""By how much a number may differ between two runs of the same program, so that nobody is told of weather.

Within a run the steps tell. They depend on each other, so blocks of them are drawn, as long as that lasts (a moving
block bootstrap: Kuensch, 1989); a few recorded steps get Student's interval. Between runs only repeated runs tell: a
baseline of several. Without them the least differences are those that were measured between repeated runs on quiet
machines (benchmarks/README.md), by what is compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.statistics.chance import student_quantile, student_tail

__all__ = [
    "BETWEEN",
    "KERNEL_DEVIATIONS",
    "between_chance",
    "between_runs",
    "block_length",
    "combined",
    "of_difference",
    "student",
    "usual",
    "within_chance",
    "within_run",
]

F64 = NDArray[np.float64]

LEVEL = 0.005
"""Of each tail."""
MANY = 20
"""Steps from which on blocks of them are drawn."""
DRAWS = 400
MOST = 4_000
"""Steps that are drawn from; of more the last ones."""
LEAST_BLOCK = 3
CORRELATED = 0.1
"""Correlation under which steps are taken for independent."""

BETWEEN = {"device_bound": 0.03, "host_bound": 0.05, "kernel": 0.04, "collective": 0.10, "memory": 0.01}
"""Relative differences between runs of one program. Steps: medians of repeated jobs were up to 0.4 % apart where the
device is the limit and up to 13 % where shared hosts are, 3 and 5 % on quiet ones. A kernel that runs alone:
a standard deviation of 1.1 % between runs (596 kinds in 13 pairs), of which this is 3.5: 99.5 % were within. Transfers:
bus bandwidth of one size."""

KERNEL_DEVIATIONS = 3.5
"""Of ``BETWEEN["kernel"]``."""


def block_length(values: F64) -> int:
    """How many neighbours depend on each other: at which lag the correlation is gone; at least three."""
    centred = values - values.mean()
    power = float(centred @ centred)
    for lag in range(1, len(values) // 4):
        if power <= 0 or float(centred[:-lag] @ centred[lag:]) / power < CORRELATED:
            return max(lag, LEAST_BLOCK)
    return max(len(values) // 4, 1)


def within_run(values: Sequence[float] | F64) -> float | None:
    """Half the width of the 99 % interval of the median, in the values' unit; None for fewer than two."""
    own = np.asarray(values, np.float64)[-MOST:]
    if len(own) < 2:
        return None
    if len(own) < MANY:
        return student(len(own) - 1) * float(own.std(ddof=1)) / float(np.sqrt(len(own)))
    length = block_length(own)
    random = np.random.default_rng(len(own))
    starts = random.integers(0, len(own) - length + 1, (DRAWS, -(-len(own) // length)))
    drawn = own[(starts[:, :, None] + np.arange(length)).reshape(DRAWS, -1)[:, : len(own)]]
    low, high = np.quantile(np.median(drawn, axis=1), (LEVEL, 1 - LEVEL))
    return float(high - low) / 2


def usual(values: F64) -> float | None:
    """What the steps of a run are compared by: their median, or the mean of a few. Of a few recorded steps neighbours
    borrow from each other, as their bounds move, and the mean does not see that."""
    if not len(values):
        return None
    return float(np.median(values) if len(values) >= MANY else values.mean())


def of_difference(one: Sequence[float] | F64, other: Sequence[float] | F64) -> float | None:
    """Half the width of the 99 % interval of the difference of two runs' :func:`usual` values, from their scatter.

    The scatter of a few values is known better from both runs together. None where neither has two.
    """
    few = [own for own in (one, other) if len(own) < MANY]
    many = [within_run(own) for own in (one, other) if len(own) >= MANY]
    freedom = sum(max(len(own) - 1, 0) for own in few)
    if not few:
        return combined(*many)
    if not freedom or not all(map(len, few)):
        return None
    # by hand: numpy takes longer for four numbers, and there are some of each kernel and rank
    squares = 0.0
    for own in few:
        mean = sum(own) / len(own)
        squares += sum((value - mean) ** 2 for value in own)
    scatter = math.sqrt(squares / freedom)
    return combined(*many, *(student(freedom) * scatter / math.sqrt(len(own)) for own in few))


def between_runs(medians: Sequence[float]) -> float | None:
    """How far another run of the same program may be from the mean of some; None for fewer than three of them."""
    if len(medians) < 3:
        return None
    spread = float(np.std(medians, ddof=1))
    return student(len(medians) - 1) * spread * float(np.sqrt(1 + 1 / len(medians)))


def between_chance(change: float, bound: float, deviations: float = 3.0) -> float:
    """How likely two runs of one program are that far apart.

    Args:
        change: what was seen.
        bound: of :data:`BETWEEN`, in the unit of the change.
        deviations: how many standard deviations that is.
    """
    return math.erfc(deviations * abs(change) / bound / math.sqrt(2)) if bound else float(not change)


def within_chance(change: float, one: Sequence[float] | F64, other: Sequence[float] | F64, bound: float) -> float:
    """How likely the scatter within two runs alone makes such a change.

    Args:
        change: of their usual values.
        one: values of the one run; ``other`` likewise.
        bound: half the width of the 99 % interval of the change, as :func:`within_run` and :func:`combined` have it.
    """
    if not bound:
        return float(not change)
    freedom = min(len(one), len(other)) - 1 if min(len(one), len(other)) < MANY else math.inf
    wide = student(freedom)
    if freedom == math.inf:
        return math.erfc(wide * abs(change) / bound / math.sqrt(2))
    return 2 * student_tail(wide * abs(change) / bound, max(int(freedom), 1))


def combined(*bounds: float | None) -> float:
    """Independent errors together."""
    return math.sqrt(sum(bound**2 for bound in bounds if bound is not None))


def student(freedom: float) -> float:
    """Beyond which a share of :data:`LEVEL` of Student's distribution lies; of the normal one for no end of freedom."""
    return student_quantile(LEVEL, min(max(int(min(freedom, 1e6)), 1), 10**6))
