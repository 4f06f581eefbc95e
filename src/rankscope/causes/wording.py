"""Words for people: what a cause is called and what to do about it, and how a report spells durations and ranks."""

from __future__ import annotations

from rankscope.causes import unexplained
from rankscope.causes.base import Cause
from rankscope.causes.table import BY_NAME

__all__ = ["SCENARIO", "amount", "describe", "hours", "parts"]

SCENARIO = {
    "ideal_network": "an ideal network",
    "hidden_transfers": "transfers wholly hidden",
    "even_compute": "compute shared out evenly",
    "no_host_overhead": "no host overhead",
}
"""What a replay assumes, after "the step would gain from"."""


def describe(cause: str) -> Cause:
    """Return the record of a cause. One that no table holds (any more) gets the words of ``unexplained``."""
    return BY_NAME.get(cause, unexplained.CAUSE)


def amount(ms: float) -> str:
    """Return a duration with the digits that a reader needs."""
    if abs(ms) >= 10_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if abs(ms) >= 9.95 else f"{ms:.1f} ms"


def parts(explained: dict[str, float], *, most: int = 3) -> str:
    """Return what extra time consists of, largest first: ``waiting for input 60 ms, compiling 2.0 ms``."""
    named = [
        f"{BY_NAME[c].noun if c in BY_NAME else c} {amount(ms)}"
        for c, ms in list(explained.items())[:most]
        if ms >= 0.05
    ]
    return ", ".join(named) or "nothing"


def hours(cost_ms: float, step_ms: float, ranks: int) -> str:
    """Return what a cost is of the device hours that the job takes a day: ``, 19 of its 96 GPU-hours a day``.

    Empty where it is less than an hour: nobody pays in that unit.
    """
    day = 24.0 * ranks
    lost = day * cost_ms / step_ms if step_ms else 0.0
    return f", {lost:,.0f} of its {day:,.0f} GPU-hours a day" if lost >= 1 else ""
