"""What a cost must reach to be reported: one place for the analysis, which measures, and for the diagnosis."""

from __future__ import annotations

__all__ = [
    "LEAST_COST",
    "LEAST_EXCESS",
    "LEAST_EXCESS_NS",
    "LOSES",
    "MATTERS",
    "SCREENED",
    "UNIFORM",
    "UNIFORM_LIMIT",
    "UNNAMED_COST",
]

MATTERS = 0.02
"""Share of the step. What costs less, or may cost less by its interval, is left alone."""
LEAST_COST = 0.05
"""Share of the step that a straggler costs at least, where it is only compared with its peers. In recorded traces
faults cost 11 % and more, and healthy ranks at most 2.6 %."""
UNNAMED_COST = 0.10
"""The same of one whose extra time has no cause of its own: a host or device that is slow at all it does."""
SCREENED = LEAST_COST / 2
"""Share of the step. A rank that makes others wait for less costs less than a straggler must: mending gains no more."""
LOSES = 0.02
"""Share of one step. A step that would gain more without a rank counts as one that loses time to it."""
LEAST_EXCESS = 0.02
"""Share of the step. Less extra time over the peers in a segment is noise; so is less than :data:`LEAST_EXCESS_NS`."""
LEAST_EXCESS_NS = 20_000.0
"""Nanoseconds."""
UNIFORM = 1.2
"""By how much hosts of one healthy job differ at all that they do, at most, as measured; more is reported."""
UNIFORM_LIMIT = 1.3
"""Up to this ratio a host that is slower at everything is taken for a property of its machine, and not for a delay."""
