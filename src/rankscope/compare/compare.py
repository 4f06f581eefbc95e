"""Compare two runs: whether they are comparable, the step, what explains its difference, and everything that
differs."""

from __future__ import annotations

from rankscope.analysis.windows.replay import MAX_REPLAY_ERROR
from rankscope.analysis.windows.result import WindowResult
from rankscope.compare.comparable import changed, not_comparable, other_pace
from rankscope.compare.explain import Explanation, explain
from rankscope.compare.promises import promises
from rankscope.compare.rows.table import ROWS
from rankscope.compare.sides.noise import of_difference, usual
from rankscope.compare.sides.side import Side, other_size
from rankscope.compare.significance import keep_significant
from rankscope.compare.steps import compare_steps
from rankscope.compare.template import Template, make_template
from rankscope.records.diff import DiffPart, DiffRow, DiffSide, DiffVerdict, RunDiff
from rankscope.records.rank_window import RankWindow

__all__ = ["compare"]

UNSEEN = 0.1
"""Share of the step. If a longer change is within the noise, that it was not seen says little."""


def compare(before: Side, after: Side, *, force: bool = False, scale: bool = False) -> RunDiff:
    """Compare a run with an older one.

    Args:
        before: the older run, or a baseline.
        after: the newer one.
        force: give a verdict even if the runs are not comparable.
        scale: the number of ranks may differ, if each has the same share of the work.
    """
    one, other, step = compare_steps(before, after)
    reasons = not_comparable(before, after, scale=scale)
    if step.change is None:
        reasons.append("no step time is known of both")
    rows = [row for make in ROWS for row in make(before, after)]
    keep_significant(rows, max(step.before or 0.0, step.after or 0.0))
    reasons += other_pace(step, rows)
    notes = [*before.notes, *after.notes]
    parts = _parts(before, after, step, notes)
    verdict: DiffVerdict = "same"
    if step.change is None or (reasons and not force):
        verdict = "not_comparable"
    elif step.told:
        verdict = "slower" if step.change > 0 else "faster"
    promised = promises(before, after, step)
    hidden = not step.told and any(own.promised_ms <= (step.noise or 0.0) for own in promised)
    if verdict == "not_comparable" or hidden:
        notes += [f"whether {own.promised_ms:.1f} ms {own.text} were gained is not decided" for own in promised]
        promised = []
    if verdict == "same" and step.before and step.noise is not None and step.noise > UNSEEN * step.before:
        notes.append(
            f"a step longer by up to {100 * step.noise / step.before:.0f} % would not be seen: repeat the runs "
            "(rankscope baseline set NAME RUN RUN RUN), or let rankscope sweep alternate them"
        )
    titles = [{(f.kind, tuple(f.ranks)): f.title for f in side.report.findings} for side in (before, after)]
    return RunDiff(
        verdict=verdict,
        sentence=_sentence(verdict, one, other, step, reasons),
        before=one,
        after=other,
        step=step,
        reasons=reasons,
        changed=changed(before, after),
        parts=parts,
        rows=rows,
        promises=promised,
        findings_new=[title for key, title in titles[1].items() if key not in titles[0]],
        findings_gone=[title for key, title in titles[0].items() if key not in titles[1]],
        notes=notes,
    )


def _sentence(verdict: str, one: DiffSide, other: DiffSide, step: DiffRow, reasons: list[str]) -> str:
    if step.change is None or step.before is None or step.after is None or not step.before:
        return f"{one.name} and {other.name} cannot be compared: {'; '.join(reasons)}."
    percent, noise = 100 * step.change / step.before, 100 * (step.noise or 0.0) / step.before
    numbers = f"{step.before:.1f} -> {step.after:.1f} ms a step ({percent:+.1f} %, noise {noise:.1f} %)"
    if verdict == "not_comparable":
        return f"{one.name} and {other.name} cannot be compared: {'; '.join(reasons)}. Seen: {numbers}."
    words = {"slower": "slower than", "faster": "faster than", "same": "not told apart from"}[verdict]
    return f"{other.name} is {words} {one.name}: {numbers}."


def _parts(before: Side, after: Side, step: DiffRow, notes: list[str]) -> list[DiffPart]:
    if step.change is None:
        return []
    try:
        if (sizes := other_size(before, after)) is not None:
            raise _NotReplayedError(sizes)
        found = _replayed(before, after)
    except _NotReplayedError as reason:
        notes.append(f"the difference is not taken apart: {reason}")
        return []
    parts = [
        DiffPart(
            kind=kind,  # type: ignore[arg-type]  # the keys are KINDS_OF_WORK
            ms=ns / 1e6,
            ranks={str(rank): own / 1e6 for rank, own in sorted(found.by_rank[kind].items())},
        )
        for kind, ns in found.parts.items()
    ]
    parts.sort(key=lambda part: -abs(part.ms))
    return [*parts, DiffPart(kind="unexplained", ms=step.change - sum(part.ms for part in parts))]


class _NotReplayedError(Exception):
    """Why there is no replay."""


def _replayed(before: Side, after: Side) -> Explanation:
    """Replay the newer run with the older one's work; if only the older one has traces, the other way round."""
    for run, other, sign in ((after, before, 1.0), (before, after, -1.0)):
        window = _window(run)
        if window is None:
            continue
        own = [r for r in run.ranks if (r.attempt, r.window) == (window.attempt, window.window)]
        found = explain(window, own, _templates(other.ranks))
        if found is None:
            raise _NotReplayedError(f"{other.name} has no replayed window of all these ranks")
        _check(found, run, other, window.staged)
        if sign < 0:
            parts = {kind: -ns for kind, ns in found.parts.items()}
            ranks = {kind: {rank: -ns for rank, ns in own.items()} for kind, own in found.by_rank.items()}
            return Explanation(found.replaced, found.step, parts, ranks)
        return found
    refused = [f"{s.name}: {w.refused}" for s in (after, before) for w in s.windows if w.refused]
    raise _NotReplayedError("; ".join(refused[:2]) or "the traces of neither run are there")


def _check(found: Explanation, run: Side, other: Side, staged: bool) -> None:
    """Refuse parts that are further from the other run's recorded step than the run itself is."""
    steps = [usual(side.step_ms) for side in (run, other)]
    if steps[0] is None or steps[1] is None:
        return
    replayed = found.replaced / 1e6
    noise = of_difference(run.step_ms, other.step_ms) or 0.0
    if abs(replayed - steps[1]) > max(abs(steps[0] - steps[1]), noise, MAX_REPLAY_ERROR * steps[1]):
        why = "; messages of its pipeline also contain waiting" if staged else ""
        raise _NotReplayedError(
            f"with the work of {other.name} a step of {run.name} would take {replayed:.1f} ms, and in {other.name} it "
            f"takes {steps[1]:.1f}{why}"
        )


def _window(side: Side) -> WindowResult | None:
    return next((w for w in side.windows if w.replay is not None and not w.refused), None)


def _templates(ranks: list[RankWindow]) -> dict[int, Template]:
    found = {}
    for rank in sorted({own.rank for own in ranks}):
        template = make_template([own for own in ranks if own.rank == rank])
        if template is not None:
            found[rank] = template
    return found
