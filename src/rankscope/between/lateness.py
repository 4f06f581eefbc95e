"""How late each rank is in each step, and how much of that the others wait for.

A rank is late by its own time less the median of its peers' at the same step, what a busy machine took from each of
them left out. The peers wait for it in the part in which they meet, so that its own stay there is shorter than theirs:
by as much, where the job loses all of it. What of the lateness the peers do not wait for costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankscope.between.table import StepTable
from rankscope.medians import median_of_others

__all__ = ["Lateness", "lateness"]

F64 = npt.NDArray[np.float64]

CONTENDED = 0.02
"""Share of the step. Where ranks are held up for less, the machine is free."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """Arrays are rank x step, ms."""

    waited_for: F64
    """Lateness for which the peers wait, whatever made it."""
    charge: F64
    """What a rank costs its peers in a step by itself: lateness that they wait for, and that no busy machine explains;
    0 in steps that are not compared."""
    margin: F64
    """By how much a rank is later than the latest of the others: what the step would gain if it were not."""
    contended: bool
    """Whether ranks were held up at all."""


def lateness(table: StepTable) -> Lateness:
    """Of a whole table."""
    alone = table.own - table.held
    late = alone - median_of_others(alone.T).T
    waited_for = median_of_others(table.met.T).T - table.met
    together = np.where((late > 0) & (waited_for > 0), np.minimum(late, waited_for), 0.0)
    step = float(np.median(table.step[:, table.compared])) if table.compared.any() else 0.0
    held = float(table.held[:, table.compared].mean()) if table.compared.any() else 0.0
    contended = held > CONTENDED * step
    excused = np.zeros_like(table.held)
    if contended:
        # The same work takes more CPU time beside other processes, which take caches and cores' second threads: half as
        # much again was seen for 28 steps. Whether the work is the same, a step log does not know.
        excused = np.maximum(table.cpu - median_of_others(table.cpu.T).T, 0.0)
    charge = np.where(table.compared, np.maximum(together - excused, 0.0), 0.0)
    ahead = np.sort(alone, axis=0)
    others = np.where(alone == ahead[-1], ahead[-2], ahead[-1])  # the latest of the others
    margin = np.minimum(np.maximum(alone - others, 0.0), together)
    return Lateness(together, charge, margin, contended)
