"""What the older report said that mending would gain, against what was gained."""

from __future__ import annotations

from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffPromise, DiffRow

__all__ = ["promises"]


def promises(before: Side, after: Side, step: DiffRow) -> list[DiffPromise]:
    """The older verdict's cost, where its cause is gone from the newer report."""
    old, new = before.report.verdict, after.report.verdict
    promised = old.cost_ms_per_step
    if promised is None or old.cause is None or step.change is None or (new.cause, new.ranks) == (old.cause, old.ranks):
        return []
    got, error = -step.change, old.cost_error_ms
    who = f"rank {', '.join(map(str, old.ranks[:8]))}" if old.ranks else "all ranks"
    return [
        DiffPromise(
            text=f"without {old.cause} on {who}",
            promised_ms=promised,
            error_ms=error,
            got_ms=got,
            kept=abs(got - promised) <= (error or 0.0) + (step.noise or 0.0),
        )
    ]
