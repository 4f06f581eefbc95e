"""A pipeline's schedule: how long a step takes with other stages or other micro-batches.

GPipe and 1F1B with m micro-batches: the first passes through all stages, and the others follow the longest stage. With
stages that compute t a step, t / m for each micro-batch, a step takes ``sum(t) / m + (m - 1) / m * max(t)``. If all
stages take equally long, (p - 1) / (m + p - 1) of that is idle on each of p stages (Narayanan 2021, arXiv 2104.04473).
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["ENOUGH", "even_gain_ms", "idle_share", "more_gain_ms"]

ENOUGH = 4
"""Micro-batches per stage: with more, less than a fifth of the step is idle by the schedule."""


def idle_share(stages: int, micro_batches: int) -> float:
    """Return the share of a step in which each of several equal stages is idle, 0 to 1."""
    return (stages - 1) / (micro_batches + stages - 1)


def even_gain_ms(compute_ms: Collection[float], micro_batches: int) -> float:
    """Return what equal stages would gain of a step; nothing with one micro-batch, which waits for all of them."""
    mean = sum(compute_ms) / len(compute_ms)
    return (micro_batches - 1) / micro_batches * (max(compute_ms) - mean)


def more_gain_ms(compute_ms: Collection[float], micro_batches: int, then: int) -> float:
    """Return what as much work in ``then`` micro-batches would gain of a step."""
    return (sum(compute_ms) - max(compute_ms)) * (1 / micro_batches - 1 / then)
