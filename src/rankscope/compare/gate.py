"""Conditions under which a run fails: ``slower > 5 %``, ``launches > 0``, ``slow_rank``.

Counts decide on any machine, because they do not vary. Times decide only if both runs are comparable, and only beyond
their noise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, get_args

from rankscope.errors import ConfigError
from rankscope.records.diff import RunDiff
from rankscope.records.report import ClusterReport, VerdictKind

__all__ = ["Condition", "Failure", "decide", "parse"]

_GRAMMAR = re.compile(r"^\s*([a-z_]+)\s*(?:(<|>)\s*(\d+(?:\.\d+)?)\s*(%|ms|gib)?)?\s*$", re.IGNORECASE)
_FIRST_WORD = re.compile(r"[a-z_]*")
_COUNTED = {
    "launches": "launches",
    "syncs": "syncs",
    "collectives": "collectives",
    "bytes": "collective bytes",
    "copies": "copies",
    "compilations": "compilations",
}
"""Word -> row of counts."""
_TIMED = ("slower", "step")
_UNITS = {"slower": ("%",), "step": ("%", "ms"), "memory": ("%", "gib")}
_OF_COUNTS = ("", "%")
_VERDICTS = {"slow_rank": "straggler", **{str(kind): str(kind) for kind in get_args(VerdictKind)}}
"""Word -> kind of verdict or finding."""
_WORDS = (*_TIMED, "memory", *_COUNTED, *_VERDICTS)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition as written, and its parts."""

    text: str
    word: str
    limit: float | None = None
    unit: str = ""
    """``%`` of the older run, ``ms`` or ``gib`` of the run itself; empty: a difference."""

    @property
    def needs_base(self) -> bool:
        """Whether it needs another run to be decided."""
        return self.word not in _VERDICTS and self.unit not in {"ms", "gib"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A condition that holds, or that could not be decided."""

    condition: str
    state: Literal["holds", "undecided"]
    text: str
    """The reason, in one sentence."""


def parse(text: str) -> list[Condition]:
    """Parse conditions, separated by commas.

    Raises:
        ConfigError: a condition is invalid.
    """
    return [_parse(part) for part in text.split(",") if part.strip()]


def _parse(text: str) -> Condition:
    match = _GRAMMAR.match(text)
    word = match[1].lower() if match else _FIRST_WORD.match(text.strip().lower())[0]  # type: ignore[index]
    if match is None and word in _WORDS:
        forms = word if word in _VERDICTS else _forms(word)
        raise ConfigError(f"--fail-if {text.strip()!r} is no condition; write {forms}; commas separate conditions")
    if match is None or word not in _WORDS:
        near = get_close_matches(word, _WORDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"words are {', '.join(_WORDS)}"
        raise ConfigError(f"--fail-if {text.strip()!r} is no condition; {hint}")
    sign, limit, unit = match[2], match[3], (match[4] or "").lower()
    if word in _VERDICTS:
        if limit is not None:
            raise ConfigError(f"--fail-if {text.strip()!r}: {word} has no number; write it alone")
        return Condition(text.strip(), word)
    if limit is None or sign != ">" or unit not in _UNITS.get(word, _OF_COUNTS):
        raise ConfigError(f"--fail-if {text.strip()!r} is no condition; write {_forms(word)}")
    return Condition(text.strip(), word, float(limit), unit)


def _forms(word: str) -> str:
    """Return how conditions on a number are written."""
    return " or ".join(f"{word} > 5{' ' if unit else ''}{unit}" for unit in _UNITS.get(word, _OF_COUNTS))


def decide(
    conditions: Sequence[Condition], report: ClusterReport, diff: RunDiff | None, *, force: bool = False
) -> list[Failure]:
    """Return the conditions that hold or cannot be decided.

    Args:
        conditions: of :func:`parse`.
        report: of the run.
        diff: of the run against another one, if there is one.
        force: decide by times even if the runs are not comparable.
    """
    return [failure for condition in conditions if (failure := _decide(condition, report, diff, force)) is not None]


def _decide(condition: Condition, report: ClusterReport, diff: RunDiff | None, force: bool) -> Failure | None:
    if condition.word in _VERDICTS:
        return _verdict(condition, report)
    if diff is None and condition.needs_base:
        raise ConfigError(f"--fail-if {condition.text!r} takes another run; name it with --against")
    if condition.word in _TIMED:
        return _step(condition, report, diff, force)
    if condition.word == "memory" and condition.unit == "gib":
        return _memory(condition, report)
    assert diff is not None
    return _row(condition, diff)


def _verdict(condition: Condition, report: ClusterReport) -> Failure | None:
    wanted, verdict = _VERDICTS[condition.word], report.verdict
    if verdict.kind == wanted or any(finding.kind == wanted for finding in report.findings):
        title = next((f.title for f in report.findings if f.kind == wanted), verdict.sentence)
        return Failure(condition.text, "holds", verdict.sentence if verdict.kind == wanted else title)
    if verdict.kind in {"insufficient_data", "contended"} and wanted not in {"insufficient_data", "contended"}:
        return Failure(condition.text, "undecided", f"there is no verdict: {verdict.sentence}")
    return None


def _step(condition: Condition, report: ClusterReport, diff: RunDiff | None, force: bool) -> Failure | None:
    assert condition.limit is not None
    if condition.unit == "ms":
        step = diff.after.step_ms if diff is not None else _own_step(report)
        if step is None:
            return Failure(condition.text, "undecided", "no step time is known")
        return Failure(condition.text, "holds", f"a step takes {step:.1f} ms") if step > condition.limit else None
    assert diff is not None
    row = diff.step
    if row.change is None or not row.before or (diff.verdict == "not_comparable" and not force):
        return Failure(condition.text, "undecided", diff.sentence)
    slower = 100 * row.change / row.before
    noise = 100 * (row.noise or 0.0) / row.before
    if row.told and slower > condition.limit:
        return Failure(condition.text, "holds", diff.sentence)
    if noise > max(condition.limit, 1e-9) and slower > condition.limit:
        text = f"{diff.sentence} The noise is above the limit: more runs in the baseline, or a quieter machine, tell."
        return Failure(condition.text, "undecided", text)
    return None


def _own_step(report: ClusterReport) -> float | None:
    run_steps = report.pulse
    return run_steps.median_ms if run_steps is not None and run_steps.median_ms is not None else report.verdict.step_ms


def _memory(condition: Condition, report: ClusterReport) -> Failure | None:
    assert condition.limit is not None
    peak = max((row.peak_allocated_bytes for row in report.memory), default=None)
    if peak is None:
        return Failure(condition.text, "undecided", "memory was not recorded (capture.profile_memory)")
    if peak <= condition.limit * (1 << 30):
        return None
    return Failure(condition.text, "holds", f"the peak of device memory is {peak / (1 << 30):.1f} GiB")


def _row(condition: Condition, diff: RunDiff) -> Failure | None:
    assert condition.limit is not None
    name = _COUNTED.get(condition.word, "memory peak")
    row = next((r for r in diff.rows if r.name == name and r.kind in {"count", "memory"}), None)
    if row is None or row.before is None or row.after is None or row.change is None:
        return Failure(condition.text, "undecided", f"{name} are not known of both runs")
    if condition.unit == "%":
        grown = 100 * row.change / row.before if row.before else (float("inf") if row.change > 0 else 0.0)
    else:
        grown = row.change
    if not row.told or grown <= condition.limit:
        return None
    ranks = f" on rank {', '.join(map(str, row.ranks[:6]))}" if row.ranks else ""
    unit = " bytes" if row.unit == "bytes" else ""
    return Failure(condition.text, "holds", f"{name}: {row.before:,.6g} -> {row.after:,.6g}{unit} a step{ranks}")
