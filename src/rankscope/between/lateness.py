"""How late each rank is in each step, and how much of that its peers wait for.

A rank is late by its own time minus the median of its peers' in the same step, without the time that a busy machine
took from each of them. Its peers wait for it in the part of the step in which they meet, so that its own time in that
part is shorter than theirs; by as much, if the job loses all of it. Lateness that no peer waits for costs nothing.

Hosts that launch the work of their devices may be late for good and cost nothing. Of them only steps count in which a
rank is later than it usually is, as far as the step is longer than a usual one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankscope.between.table import StepTable
from rankscope.statistics.medians import median_of_others

__all__ = ["Lateness", "lateness"]

F64 = npt.NDArray[np.float64]

CONTENDED = 0.02
"""Share of the step time below which the time that ranks were held up does not count as contention."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """Arrays have shape (ranks, steps), in ms."""

    waited_for: F64
    """Lateness for which the peers wait, whatever its reason."""
    charge: F64
    """Lateness of a rank for which its peers wait and which contention does not explain; 0 in steps that are not
    compared."""
    margin: F64
    """By how much a rank is later than the latest of the others: what the step would gain without its lateness."""
    contended: bool
    """Whether ranks were held up by a busy machine."""


def lateness(table: StepTable) -> Lateness:
    """Compute the lateness of all ranks of a table."""
    alone = table.own - table.held
    late = alone - median_of_others(alone.T).T
    waited_for = median_of_others(table.met.T).T - table.met
    if table.launches and table.compared.any():
        late, waited_for = _unusual(late, table.compared), _unusual(waited_for, table.compared)
    together = np.where((late > 0) & (waited_for > 0), np.minimum(late, waited_for), 0.0)
    step = float(np.median(table.step[:, table.compared])) if table.compared.any() else 0.0
    if table.launches:
        # A host that is late, and still ahead of its device, costs nothing. Its peers wait in this step or the next.
        two = table.step + np.concatenate([table.step[:, 1:], table.step[:, -1:]], axis=1)
        together = np.minimum(together, np.maximum(two.min(axis=0) - 2 * step, 0.0))
    held = float(table.held[:, table.compared].mean()) if table.compared.any() else 0.0
    contended = held > CONTENDED * step
    excused = np.zeros_like(table.held)
    if contended:
        # The same work takes more CPU time beside other processes, which use caches and hardware threads of the same
        # cores: half as much again was measured over 28 steps. A step log does not show whether the work is the same.
        excused = np.maximum(table.cpu - median_of_others(table.cpu.T).T, 0.0)
    charge = np.where(table.compared, np.maximum(together - excused, 0.0), 0.0)
    ahead = np.sort(alone, axis=0)
    others = np.where(alone == ahead[-1], ahead[-2], ahead[-1])  # the latest of the others
    margin = np.minimum(np.maximum(alone - others, 0.0), together)
    return Lateness(together, charge, margin, contended)


def _unusual(values: F64, compared: npt.NDArray[np.bool_]) -> F64:
    """Return by how much each value is more than its rank's usual one."""
    return values - np.median(values[:, compared], axis=1, keepdims=True)
