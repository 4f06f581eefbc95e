"""What a piece of advice is: an object of this trace, what to change about it, what that gains, and how to see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rankscope.causes.wording import share, with_error
from rankscope.diagnose.base.rule import Case
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action

__all__ = ["LEAST", "MOST", "NOTHING", "Advice", "at_most", "in_words"]

LEAST = 0.01
"""Share of the step. What can gain less is not advised."""
MOST = 3
"""Told at once: after them the limit may be elsewhere."""
NOTHING = "Nothing that was measured is worth 1 % of a step."
"""Said where there is no advice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """One kind of advice."""

    code: str
    """``action.code`` in report.json: it never changes."""
    find: Callable[[Case], list[Action]]
    """What to do in this job: nothing where its object is not there, or its change is in use already."""
    knobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Code of an action -> names of the arguments that it would change, as PyTorch has them and as scripts usually call
    theirs: by these ``rankscope sweep`` finds what was predicted."""


def at_most(
    evidence: Evidence, code: str, text: str, gain_ms: float | None, check: str, ranks: list[int] | None = None
) -> list[Action]:
    """Return an action whose gain is known by its bound; nothing where that is too little to be worth doing."""
    step = evidence.step_ms or 0.0
    if gain_ms is None or gain_ms < LEAST * step or not step:
        return []
    who = evidence.ranks if ranks is None else ranks
    return [Action(code=code, text=text, ranks=who, kind="bound", saves_ms=gain_ms, check=check)]


def in_words(action: Action, step_ms: float | None) -> str:
    """Return the action as a line of Next: what to change, and what that saves."""
    if action.saves_ms is None:
        return action.text
    saved = with_error(action.saves_ms, action.error_ms)
    of = f" ({share(action.saves_ms, step_ms)})" if step_ms else ""
    return f"{action.text} Saves {'at most ' if action.kind == 'bound' else ''}{saved} a step{of}."
