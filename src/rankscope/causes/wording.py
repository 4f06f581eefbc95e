"""Wording of causes, and the format of durations, shares and device hours in reports."""

from __future__ import annotations

import math

from rankscope.causes import unexplained
from rankscope.causes.base import Cause
from rankscope.causes.table import BY_NAME

__all__ = [
    "SCENARIO",
    "amount",
    "cause_record",
    "hours",
    "parts",
    "sentence_of",
    "share",
    "step_time",
    "told_apart",
    "with_error",
]

SCENARIO = {
    "ideal_network": "an ideal network",
    "hidden_transfers": "transfers wholly hidden",
    "even_compute": "compute shared out evenly",
    "no_host_overhead": "no host overhead",
}
"""Scenario of a replay -> noun phrase that completes "the step would gain from"."""


def cause_record(cause: str) -> Cause:
    """Return the record of a cause; for a name that the table does not (or no longer) contain, ``unexplained``."""
    return BY_NAME.get(cause, unexplained.CAUSE)


def amount(ms: float) -> str:
    """Return a duration as text with about two significant digits: ``0.04 ms``, ``0.65 ms``, ``9.9 ms``, ``60 ms``,
    ``12.5 s``."""
    if abs(ms) >= 10_000:
        return f"{ms / 1000:.1f} s"
    if 0 < abs(ms) < 0.095:
        return f"{float(f'{ms:.1g}'):g} ms"
    if 0 < abs(ms) < 0.995:
        return f"{ms:.2f} ms"
    return f"{ms:,.0f} ms" if abs(ms) >= 9.95 else f"{ms:.1f} ms"


def step_time(ms: float) -> str:
    """Return the length of a step with three significant digits, as it is measured better than what is found in it."""
    decimals = 0 if ms >= 99.95 else 1 if ms >= 9.995 else 2
    return f"{ms / 1000:.1f} s" if ms >= 10_000 else f"{ms:,.{decimals}f} ms"


def told_apart(one_ms: float, other_ms: float) -> tuple[str, str]:
    """Return two durations as text, with as many decimals as show which is the longer: ``15.2 ms``, ``14.9 ms``."""
    one, other = amount(one_ms), amount(other_ms)
    for decimals in (1, 2, 3):
        if one != other or one_ms == other_ms:
            break
        one, other = (f"{ms:,.{decimals}f} ms" for ms in (one_ms, other_ms))
    return one, other


def with_error(ms: float, error_ms: float | None) -> str:
    """Return a duration with its uncertainty: ``60.3 ± 1.9 ms``, ``38 ± 8 ms``.

    Both are rounded to the same digit: the error keeps one significant digit, or two if it begins with 1.
    """
    if error_ms is None or error_ms <= 0:
        return amount(ms)
    decimals = -math.floor(math.log10(error_ms))
    if f"{error_ms:e}".startswith("1"):
        decimals += 1
    decimals = min(max(decimals, 0), 3)
    return f"{ms:,.{decimals}f} ± {error_ms:,.{decimals}f} ms"


def share(ms: float, whole_ms: float) -> str:
    """Return a part of the step in whole per cent, or ``less than 1 %``."""
    pct = 100.0 * ms / whole_ms if whole_ms else 0.0
    return f"{pct:.0f} %" if pct >= 1 or pct <= 0 else "less than 1 %"


def sentence_of(phrase: str, *, several: bool = False) -> str:
    """Return the phrase of a cause as a sentence: "it waits for input" becomes "It waits for input.".

    With ``several`` ranks it becomes "Each waits for input.".
    """
    for one, each in (("it ", "each "), ("its ", "their ")) if several else ():
        phrase = each + phrase.removeprefix(one) if phrase.startswith(one) else phrase
    return f"{phrase[:1].upper()}{phrase[1:]}."


def parts(explained: dict[str, float], *, most: int = 3) -> str:
    """Return the first ``most`` parts of extra time, in their order: ``waiting for input 60 ms, compiling 2.0 ms``.

    Args:
        explained: cause -> ms per step, the largest first.
        most: how many are named.
    """
    named = [
        f"{BY_NAME[c].noun if c in BY_NAME else c} {amount(ms)}"
        for c, ms in list(explained.items())[:most]
        if ms >= 0.05
    ]
    return ", ".join(named) or "nothing"


def hours(cost_ms: float, step_ms: float, ranks: int) -> str:
    """Return the cost as device hours of the job per day: ``, 19 of its 96 GPU-hours a day``; empty below one hour."""
    day = 24.0 * ranks
    lost = day * cost_ms / step_ms if step_ms else 0.0
    return f", {lost:,.0f} of its {day:,.0f} GPU-hours a day" if lost >= 1 else ""
