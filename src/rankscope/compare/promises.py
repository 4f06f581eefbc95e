"""Gains that the older report predicted, compared with the gains that were measured."""

from __future__ import annotations

from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffPromise, DiffRow

__all__ = ["promises"]


def promises(before: Side, after: Side, step: DiffRow) -> list[DiffPromise]:
    """Return the older verdict's cost, if its cause is gone from the newer report; else the bound of the one action
    that the newer report lacks. If several are gone, it is unknown which was followed, and gains do not add up."""
    old, new = before.report.verdict, after.report.verdict
    if step.change is None:
        return []
    got, noise = -step.change, step.noise or 0.0
    promised = old.cost_ms_per_step
    if promised is not None and old.cause is not None:
        if (new.cause, new.ranks) == (old.cause, old.ranks):
            return []
        error = old.cost_error_ms
        who = f"rank {', '.join(map(str, old.ranks[:8]))}" if old.ranks else "all ranks"
        kept = abs(got - promised) <= (error or 0.0) + noise
        text = f"without {old.cause} on {who}"
        return [DiffPromise(text=text, promised_ms=promised, error_ms=error, got_ms=got, kept=kept)]
    left = {action.code for action in after.report.actions}
    gone = [own for own in before.report.actions if own.kind == "bound" and own.code not in left]
    if len(gone) != 1 or not step.told or got <= 0:  # advice that was not followed may disappear for other reasons
        return []
    (one,) = gone
    bound = one.saves_ms or 0.0
    return [
        DiffPromise(
            text=f"by {one.code}", promised_ms=bound, error_ms=None, got_ms=got, kept=got <= bound + noise, at_most=True
        )
    ]
