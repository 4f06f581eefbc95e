"""The smallest fault that a verdict without a straggler would have detected."""

from __future__ import annotations

from rankscope.records.evidence import Evidence
from rankscope.statistics.thresholds import LEAST_COST, MATTERS, SCREENED, UNNAMED_COST

__all__ = ["in_short", "smallest_fault"]


def smallest_fault(evidence: Evidence) -> str:
    """Return in a sentence the cost from which on a rank would have been named."""
    if evidence.screened:
        most = _percent(SCREENED)
        return f"No rank makes the others wait for {most} of the step, and mending one gains no more than that."
    if not evidence.device:
        return (
            f"Without devices, waiting for input, standing still and more operators show from {_percent(MATTERS)} of "
            f"the step on (error taken off), larger ones from {_percent(LEAST_COST)}, and a host that is slow at all "
            f"it does from {_percent(UNNAMED_COST)}."
        )
    shows = "How much slower a device must be to show is not known, as the ranks share too few kernels or steps"
    if evidence.visible_pct is not None:
        shows = f"A device that is {evidence.visible_pct:.1f} % slower than the others in all steps would have shown"
    return f"{shows}; a rank is named where it costs more than {_percent(MATTERS)} of the step, error taken off."


def in_short(evidence: Evidence) -> str:
    """Return the same in a few words."""
    if evidence.screened:
        return f"no rank makes others wait for {_percent(SCREENED)} of the step"
    if evidence.visible_pct is not None:
        return f"a device {evidence.visible_pct:.1f} % slower would have shown"
    return "a small cost would not show"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
