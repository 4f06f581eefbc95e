"""Transfers that take longer than others of their kind, found and not yet priced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stragglers.statistics import confidence

__all__ = ["SlowTransfers", "relative_error"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SlowTransfers:
    """Transfers among some ranks that take ``ratio`` times as long as those of similar groups or pairs of ranks."""

    ranks: tuple[int, ...]
    kinds: tuple[str, ...]
    """Of the calls; ``message`` between pairs of ranks."""
    ratio: float
    members: I64
    """Members of the matched calls whose transfers are too long, and by which ``factor`` they would be as usual."""
    factor: F64
    error: float
    """Half width of the 95 % confidence interval of the extra time, as a share of it, from the scatter of the steps."""
    pairs: tuple[tuple[int, int], ...] = ()
    """The pairs of ranks, if it is messages."""


def relative_error(mean: float, error: float, steps: int) -> float:
    """Return the half width of the 95 % confidence interval of a mean over so many steps, as a share of it."""
    return confidence(steps) * error / mean if mean > 0 else float(np.inf)
