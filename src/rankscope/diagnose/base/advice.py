"""Definition of advice: an object in this trace, what to change about it, the gain, and how to check the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rankscope.causes.wording import share, with_error
from rankscope.diagnose.base.rule import Case
from rankscope.records.changes import Gain
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action

__all__ = [
    "LEAST",
    "MOST",
    "NOTHING",
    "Advice",
    "at_most",
    "device_gain",
    "in_range",
    "in_words",
    "mends",
    "unrecorded",
]

LEAST = 0.01
"""Share of the step. Actions with less gain are not recommended."""
MOST = 3
"""Largest number of actions that are shown, because after them the bottleneck may be elsewhere."""
NOTHING = "Nothing that was measured is worth 1 % of a step."
"""Shown if there is no advice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """One kind of advice."""

    code: str
    """``action.code`` in report.json, which never changes."""
    find: Callable[[Case], list[Action]]
    """Returns the actions for this job: none if its object does not exist, or if the change is in use already."""
    knobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Code of an action -> names of the arguments that it would change, by PyTorch's names and those usual in scripts.
    ``rankscope sweep`` finds predictions by them."""


def at_most(
    evidence: Evidence, code: str, text: str, gain_ms: float | None, check: str, ranks: list[int] | None = None
) -> list[Action]:
    """Return an action whose gain has a known bound; nothing if that is too small. No gain is more than the step that
    trains without recording."""
    step = evidence.step_ms or 0.0
    if gain_ms is None or gain_ms < LEAST * step or not step:
        return []
    gain_ms = min(gain_ms, evidence.own_step_ms or step)
    who = evidence.ranks if ranks is None else ranks
    return [Action(code=code, text=text, ranks=who, kind="bound", saves_ms=gain_ms, check=check)]


def in_range(
    evidence: Evidence, code: str, text: str, gain: Gain, check: str, ranks: list[int] | None = None
) -> list[Action]:
    """Return an action whose gain is known by a range; nothing if even the best case is too small. A range that begins
    below what is recommended is a bound."""
    bound = at_most(evidence, code, text, gain.high_ms, check, ranks)
    low = min(gain.low_ms, gain.high_ms)
    if not bound or low < LEAST * (evidence.step_ms or 0.0):
        return bound
    high = bound[0].saves_ms or 0.0
    middle = (min(low, high) + high) / 2
    return [replace(bound[0], kind="replay", saves_ms=middle, error_ms=high - middle)]


def hidden_ms(evidence: Evidence, removed_ms: float) -> float:
    """Return the most that a step can gain if some transfers are hidden; ``removed_ms``: if they took no time.

    They were not hidden before, and need work beside which they run.
    """
    overlap = evidence.overlap_gain_ms
    return min(removed_ms, evidence.transfer_ms, removed_ms if overlap is None else overlap)


def mends(action: Action, case: Case) -> bool:
    """Return whether the action is on late ranks only, with a gain by replay."""
    return action.kind == "replay" and set(action.ranks) <= {d.suspect.rank for d in case.stragglers}


def unrecorded(evidence: Evidence) -> float:
    """Return the length of an unrecorded step over that of a recorded one."""
    return max(evidence.own_step_ms / evidence.whole_step_ms, 0.0) if evidence.whole_step_ms else 1.0


def device_gain(evidence: Evidence, group: str) -> float:
    """Return what a step would gain if kernels of one kind took no time, ms: by replay.

    Recording slows hosts, and where hosts limit the recorded steps their replay gains nothing from kernels. So it is no
    less than the kernels' time in that share of an unrecorded step in which devices are not idle for their hosts.
    """
    replayed = evidence.work_gains.get(group, 0.0)
    if not evidence.recording_ms or evidence.efficiency is None:
        return replayed
    whole = sum(row.ms_per_step for row in evidence.efficiency.groups if row.name == group)
    return max(replayed, whole * (1.0 - evidence.own_host_pct / 100.0))


def in_words(action: Action, step_ms: float | None) -> str:
    """Return the action as a line of Next: what to change, and the gain."""
    if action.saves_ms is None:
        return action.text
    saved = with_error(action.saves_ms, action.error_ms)
    of = f" ({share(action.saves_ms, step_ms)})" if step_ms else ""
    return f"{action.text} Saves {'at most ' if action.kind == 'bound' else ''}{saved} a step{of}."
