"""Numbers and names as words: the same phrases in the page, the terminal and Markdown."""

from __future__ import annotations

from rankscope.causes.wording import SCENARIO, amount, step_time, with_error
from rankscope.diagnose.rules.table import name_of
from rankscope.records.report import Finding, Verdict
from rankscope.report.common import plain_text

__all__ = [
    "DASH",
    "KIND_LABELS",
    "cause",
    "gain",
    "kind",
    "ms",
    "pct",
    "plus_minus",
    "scenario",
    "sentence",
    "share_of_step",
    "steps_share",
    "without",
]

DASH = "\N{EN DASH}"
"""Shown for an unknown number."""
KIND_LABELS = {
    "straggler": "Straggler",
    "balanced": "No rank to blame",
    "host_bound": "Host bound",
    "comm_bound": "Communication bound",
    "memory_bound": "Memory bound",
    "pipeline": "Pipeline",
    "contended": "Machine busy",
    "insufficient_data": "Not enough data",
}
_REASONS = {"single_rank": "One rank", "never_trained": "Job ended early", "never_opened": "Job ended early"}
"""``verdict.reason`` of jobs of which no data is missing -> label."""
_DEFAULT_SENTENCES = {
    "straggler": "One or more ranks hold the job back.",
    "balanced": "No rank is to blame.",
    "host_bound": "The host cannot hand out work fast enough.",
    "comm_bound": "Communication that nothing hides takes much of each step.",
    "memory_bound": "Device memory is taken and given back in every step.",
    "pipeline": "Stages of a pipeline wait for each other.",
    "contended": "The machine was busy; no rank is to blame.",
    "insufficient_data": "There is not enough data for a verdict.",
}


def cause(identifier: str) -> str:
    """Return a cause or a kind of finding in words."""
    return name_of(identifier) or plain_text.one_line(identifier.replace("_", " "), 60)


def scenario(identifier: str) -> str:
    """Return the assumption of a replay, in words."""
    return SCENARIO.get(identifier) or plain_text.one_line(identifier.replace("_", " "), 60)


def ms(value: float | None, unit: str = " ms") -> str:
    """Return milliseconds with about three significant digits."""
    if value is None:
        return DASH
    size = abs(value)
    decimals = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 3
    return f"{value:,.{decimals}f}{unit}"


def without(verdict: Verdict) -> list[str]:
    """Return the step without the cost, to the digit that the cost is known to, and its unit; empty without a cost."""
    if verdict.step_ms is None or verdict.cost_ms_per_step is None:
        return []
    left = max(verdict.step_ms - verdict.cost_ms_per_step, 0.0)
    return [with_error(left, verdict.cost_error_ms).split()[0], "ms"]


def plus_minus(value: float | None, error: float | None, unit: str = " ms") -> str:
    """Return a cost with its uncertainty: ``60.3 ± 1.9 ms``, ``38 ± 8 ms``.

    Both end at the same digit: the error has one significant digit, two if it begins with 1 (the usual rule of
    physics), and the value has no digit that the error makes meaningless.
    """
    if value is None or error is None:
        return ms(value, unit)
    if error <= 0:
        return f"{ms(value, '')} ± 0{unit}"
    return with_error(value, error).removesuffix(" ms") + unit


def pct(value: float | None, decimals: int = 1) -> str:
    """Return per cent, or a dash if unknown."""
    return DASH if value is None else f"{value:.{decimals}f} %"


def kind(verdict: Verdict) -> str:
    """Return the kind of verdict as a label."""
    return _REASONS.get(verdict.reason or "") or KIND_LABELS.get(verdict.kind, "Verdict")


def sentence(verdict: Verdict) -> str:
    """Return the verdict's sentence, or a plain one if the diagnosis has none."""
    return plain_text.prose(verdict.sentence, 600) or _DEFAULT_SENTENCES.get(verdict.kind, "No verdict.")


def share_of_step(cost: float | None, step: float | None) -> float | None:
    """Return the cost in per cent of the step, if both are known."""
    return None if cost is None or not step else 100 * cost / step


def steps_share(verdict: Verdict) -> str:
    """Return in how many of the steps it costs time: ``in every step``, or empty if unknown."""
    share = verdict.share_of_steps_pct
    if share is None:
        return ""
    return "in every step" if share == 100 else f"in {_percent(share)} of the steps"


def gain(finding: Finding, step: float | None) -> str:
    """Return what removing a finding's cause would gain, in words; empty if that is not known by itself. The actions
    have the gain of each change."""
    cost = finding.cost_ms_per_step
    if cost is None:
        return ""
    share = share_of_step(cost, step)
    if share is None or step is None or cost > step:
        return f"About {ms(cost)} of every step."
    return f"A step of {step_time(step)} would take about {amount(step - cost)}, {_percent(share)} less."


def _percent(share: float) -> str:
    return f"{share:.0f} %" if share >= 1 or share == 0 else "less than 1 %"
