"""Recommended actions with their gains, and the step under other assumptions, by replay."""

from __future__ import annotations

from rankscope.causes.wording import with_error
from rankscope.listing import some_ranks
from rankscope.records.report import Action, ClusterReport
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "actions", "gains"]

METRICS: dict[str, Metric] = {
    "saves_ms": Metric(
        "Verdict and findings",
        "Saves",
        "ms per step",
        "What each step would shrink by after this change alone, by replay of the recorded steps.",
        "At most: the time of what is changed, where what remains of it is not known. Savings do not add up: after the "
        "first change the limit may be elsewhere.",
    ),
    "step_then_ms": Metric(
        "Verdict and findings",
        "Step then",
        "ms",
        "The job's step after this change and all above it.",
        "By one replay of the recorded steps with all of these changes: savings do not add up. Not known below a "
        "change that no replay can make, and of jobs of more than 16 ranks.",
    ),
    "what_if": Metric(
        "Verdict and findings",
        "Gain",
        "ms per step",
        "What each step would shrink by if the recorded steps were replayed under this assumption.",
        "Assumptions are replayed one by one; their gains do not add up. Where it was measured, what recording adds "
        "to a step is taken off the gain of a faster host.",
    ),
    "what_if_pct": Metric("Verdict and findings", "Of the step", "%", "The gain divided by the job's step time."),
}
_LONGEST = 400


def actions(report: ClusterReport) -> Table:
    """Return the recommended actions: late ranks first, then in order of gain."""
    step = report.verdict.step_ms
    heads = [
        Column("Do"),
        Column("Ranks"),
        metric(METRICS["saves_ms"]),
        metric(METRICS["what_if_pct"], "Of the step"),
        metric(METRICS["step_then_ms"]),
        Column("Check it by"),
    ]
    every = len(report.ranks)
    rows = [
        Row(
            [
                text(action.text, _LONGEST),
                text("all" if len(action.ranks) == every > 1 else some_ranks(action.ranks, 4), 48),
                _saves(action),
                _share(words.share_of_step(action.saves_ms, step)),
                *numbers([action.step_then_ms if index > 1 else _left(action.saves_ms, step)], 1),
                text(action.check or None, _LONGEST),
            ],
            anchor=f"do-{index}",
        )
        for index, action in enumerate(report.actions, 1)
    ]
    return Table("actions", heads, rows)


def _saves(action: Action) -> Cell:
    if action.saves_ms is None:
        return Cell(words.DASH, "", "No gain in time is claimed for this.")
    shown = with_error(action.saves_ms, action.error_ms).removesuffix(" ms")
    return Cell(f"at most {shown}" if action.kind == "bound" else shown, action.saves_ms)


def _share(pct: float | None) -> Cell:
    """Return a share in whole per cent; a smaller one is no zero."""
    return Cell("<1", pct) if pct is not None and 0 < pct < 0.995 else numbers([pct], 0)[0]


def _left(saves: float | None, step: float | None) -> float | None:
    return None if saves is None or step is None else max(step - saves, 0.0)


def gains(report: ClusterReport) -> Table:
    """Return what each step would gain by replay under other assumptions, in order of gain."""
    items = sorted(report.what_if.items(), key=lambda item: -(item[1] or 0.0))
    step = report.verdict.step_ms
    shares = [words.share_of_step(gain, step) for _, gain in items]
    columns = [
        [text(words.scenario(name)) for name, _ in items],
        numbers([gain for _, gain in items]),
        [_share(share) for share in shares],
    ]
    heads = [Column("With"), metric(METRICS["what_if"]), metric(METRICS["what_if_pct"])]
    return Table("gains", heads, [Row(cells) for cells in assemble(columns)])


def _build(report: ClusterReport) -> Variables | None:
    todo, bounds = actions(report), gains(report)
    if not todo.rows and not bounds.rows:
        return None
    lead = "" if todo.rows else "Nothing that was measured is worth 1 % of a step."
    return tables(lead, ("What to do", todo), ("Bounds: one assumption at a time, by replay", bounds))


SECTION = Section("gains", "To do", "What to do, and what it would gain", _build, METRICS)
