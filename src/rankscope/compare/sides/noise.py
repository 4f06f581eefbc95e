"""Usual differences between two runs of the same program, so that they are not reported as changes.

Within a run the scatter of the steps shows it. Steps depend on each other, so blocks of them are drawn that are as long
as this dependence (a moving block bootstrap: Kuensch, 1989); a few recorded steps get Student's interval. Between runs
only repeated runs show it: a baseline of several. Without them the least differences are those measured between
repeated runs on quiet machines (benchmarks/README.md), by the kind of quantity; and a machine that drifts within a run
drifts between runs, so that the unrecorded steps of two runs differ by as much as the quarters of each
(:func:`of_runs`).
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
    "ON_CPUS",
    "REPEATS",
    "between_chance",
    "block_length",
    "combined",
    "of_difference",
    "of_runs",
    "student",
    "student_chance",
    "usual",
    "within_chance",
    "within_run",
]

F64 = NDArray[np.float64]

LEVEL = 0.005
"""Probability of each tail."""
MANY = 20
"""Number of steps from which on blocks of them are drawn."""
DRAWS = 400
MOST = 4_000
"""Largest number of steps to draw from; of more, the last ones are used."""
PARTS = 4
"""Number of parts of a run whose medians show how a machine drifts."""
REPEATS = 3
"""Number of runs of one program from which on they show what runs differ by."""
LEAST_BLOCK = 3
CORRELATED = 0.1
"""Correlation below which steps count as independent."""

BETWEEN = {"device_bound": 0.03, "host_bound": 0.05, "kernel": 0.04, "collective": 0.10, "memory": 0.01}
"""Relative differences between runs of one program. Steps: medians of repeated jobs differed by up to 0.4 % if the
device is the bottleneck and up to 13 % if shared hosts are, 3 and 5 % on quiet ones. Kernels without overlap: the
standard deviation between runs is 1.1 % (596 kinds in 13 pairs), of which this is 3.5; 99.5 % were within. Transfers:
bus bandwidth of one size."""

ON_CPUS = {**BETWEEN, "device_bound": 0.5, "kernel": 0.6, "collective": 2.0}
"""The same for ranks without an accelerator, whose operators take the place of kernels: caches, clocks and neighbours
change the pace of a CPU. Between equal runs alone on two cores (45 pairs) the standard deviations were 11 to 17 % of
the compute, 14 to 22 % of a kind of operator beside the pace of all, and 18 to 90 % of gloo's transfers."""

KERNEL_DEVIATIONS = 3.5
"""Number of standard deviations in ``BETWEEN["kernel"]``."""


def block_length(values: F64) -> int:
    """Return how many neighbours depend on each other: the lag at which the correlation vanishes; at least three."""
    centred = values - values.mean()
    power = float(centred @ centred)
    for lag in range(1, len(values) // 4):
        if power <= 0 or float(centred[:-lag] @ centred[lag:]) / power < CORRELATED:
            return max(lag, LEAST_BLOCK)
    return max(len(values) // 4, 1)


def within_run(values: Sequence[float] | F64) -> float | None:
    """Return half the width of the 99 % interval of the median, in the values' unit; None for fewer than two."""
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
    """Return the value by which the steps of a run are compared: their median, or the mean of a few. Among a few
    recorded steps, a shift of a boundary moves time between neighbours, which does not change the mean."""
    if not len(values):
        return None
    return float(np.median(values) if len(values) >= MANY else values.mean())


def of_difference(one: Sequence[float] | F64, other: Sequence[float] | F64) -> float | None:
    """Return half the width of the 99 % interval of the difference of two runs' :func:`usual` values, by scatter.

    With few values the scatter is estimated from both runs together. None if neither has two.
    """
    few = [own for own in (one, other) if len(own) < MANY]
    many = [within_run(own) for own in (one, other) if len(own) >= MANY]
    freedom = sum(max(len(own) - 1, 0) for own in few)
    if not few:
        return combined(*many)
    if not freedom or not all(map(len, few)):
        return None
    # by hand: numpy takes longer for four numbers, and there are some for each kernel and rank
    squares = 0.0
    for own in few:
        mean = sum(own) / len(own)
        squares += sum((value - mean) ** 2 for value in own)
    scatter = math.sqrt(squares / freedom)
    return combined(*many, *(student(freedom) * scatter / math.sqrt(len(own)) for own in few))


def of_runs(older: Sequence[F64], newer: F64) -> float:
    """Return how far the median of a run's steps may be from the mean of the medians of others of the same program.

    The noise of a machine is slow as well as fast: with a spectrum that falls as one over the frequency, runs differ by
    as much as their parts do, however many steps are averaged (the floor of the Allan deviation: Allan, 1966). So the
    medians of the quarters of each run count as if each was a run, unless at least :data:`REPEATS` older runs scatter
    more than that.

    Args:
        older: unrecorded steps of each of the other runs, in order, at least :data:`PARTS` of them.
        newer: those of the run.

    Returns:
        Half the width of the 99 % interval, in the unit of the steps.
    """
    parts = np.array([[np.median(part) for part in np.array_split(run, PARTS)] for run in (*older, newer)])
    scatter, freedom = float(np.sqrt(parts.var(axis=1, ddof=1).mean())), parts.size - len(parts)
    if len(older) >= REPEATS:
        between = float(np.std([np.median(run) for run in older], ddof=1))
        if between > scatter:
            scatter, freedom = between, len(older) - 1
    return student(freedom) * scatter * float(np.sqrt(1 + 1 / len(older)))


def between_chance(change: float, bound: float, deviations: float = 3.0) -> float:
    """Return the probability that two runs of one program differ that much.

    Args:
        change: the observed change.
        bound: of :data:`BETWEEN`, in the unit of the change.
        deviations: the number of standard deviations of the bound.
    """
    return math.erfc(deviations * abs(change) / bound / math.sqrt(2)) if bound else float(not change)


def within_chance(change: float, one: Sequence[float] | F64, other: Sequence[float] | F64, bound: float) -> float:
    """Return the probability of such a change from the scatter within the two runs alone.

    Args:
        change: of their usual values.
        one: values of the one run; ``other`` likewise.
        bound: half the width of the 99 % interval of the change, as from :func:`within_run` and :func:`combined`.
    """
    if not bound:
        return float(not change)
    fewer = min(len(one), len(other))
    freedom = fewer - 1 if fewer < MANY else math.inf
    return student_chance(student(freedom) * change / bound, freedom)


def combined(*bounds: float | None) -> float:
    """Combine independent errors."""
    return math.sqrt(sum(bound**2 for bound in bounds if bound is not None))


def student(freedom: float) -> float:
    """Return the quantile beyond which a share of :data:`LEVEL` of Student's distribution lies; of the normal one for
    infinite freedom."""
    return student_quantile(LEVEL, _whole(freedom))


def student_chance(t: float, freedom: float) -> float:
    """Return the probability of a value as far from zero as ``t``, on either side, of the same distribution."""
    return 2 * student_tail(abs(t), _whole(freedom))


def _whole(freedom: float) -> int:
    """Return whole degrees of freedom; with a million of them the distribution is the normal one."""
    return max(int(min(freedom, 1e6)), 1)
