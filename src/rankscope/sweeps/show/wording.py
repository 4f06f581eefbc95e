"""A sweep in words, the same in every format."""

from __future__ import annotations

from rankscope.listing import counted
from rankscope.records.sweep import SweepResult, SweepRow

__all__ = ["COLUMNS", "cells", "lead", "remarks", "summary"]

COLUMNS = ("setting", "step, ms", "predicted", "gain, ms", "gain")
"""The first is text, the others are numbers."""


def lead(result: SweepResult) -> list[str]:
    """Describe what was run, and how it is compared."""
    lines = [f"{counted(len(result.rows), 'setting')}, {result.ended} of {result.planned} runs; order {result.order}"]
    what = f"{result.steps:,} steps that nobody recorded" if result.step_source == "unrecorded" else "recorded steps"
    noise = (
        "intervals of 99 % by the repeats"
        if result.noise_source == "repeats"
        else "too few repeats to tell the noise: what runs of one program usually differ by"
    )
    return [*lines, f"{what}; {noise}"]


def cells(row: SweepRow, *, first: bool) -> tuple[str, str, str, str, str]:
    """Return one line of the table, by :data:`COLUMNS`."""
    if row.step_ms is None:
        return row.name, "failed" if row.failed else "not run", "", "", ""
    step = f"{row.step_ms:.1f}" + (f" ± {row.noise_ms:.1f}" if row.noise_ms is not None else "")
    if first:
        return row.name, step, "", "compared with", ""
    return row.name, step, _predicted(row), *_gained(row)


def _predicted(row: SweepRow) -> str:
    if row.predicted_ms is None:
        return ""
    error = f" ± {row.predicted_error_ms:.1f}" if row.predicted_error_ms is not None else ""
    return f"{'at most ' if row.predicted_at_most else ''}{row.predicted_ms:.1f}{error}"


def _gained(row: SweepRow) -> tuple[str, str]:
    """Return the gain in ms with its interval, and its share of the first setting's step; ``~`` if it may be chance."""
    if row.gain_ms is None:
        return "?", ""
    if row.gain_low_ms is None or row.gain_high_ms is None:
        return f"~ ({row.gain_ms:+.1f})", "~"
    interval = f"{row.gain_low_ms:+.1f} to {row.gain_high_ms:+.1f}"
    return (f"{row.gain_ms:+.1f}" if row.told else "~") + f" ({interval})", f"{share(row):+.1f} %" if row.told else "~"


def share(row: SweepRow) -> float:
    """Return the gain in per cent of the first setting's step."""
    base = (row.step_ms or 0.0) + (row.gain_ms or 0.0)
    return 100 * (row.gain_ms or 0.0) / base if base else 0.0


def summary(result: SweepResult) -> str:
    """Return the result in a sentence."""
    first = result.rows[0]
    if first.step_ms is None:
        return f"No run of {first.name}, which the others are compared with, has ended well."
    best = result.best
    if best is None or best.gain_ms is None:
        others = [row for row in result.rows[1:] if row.step_ms is not None]
        if not others and result.ended == result.planned:
            return "No run of another setting has ended well."
        return f"No setting is faster than {first.name} by more than chance." if others else ""
    return f"{best.name} is the fastest: {best.gain_ms:.1f} ms ({share(best):.1f} %) a step less than {first.name}."


def remarks(result: SweepResult) -> list[str]:
    """Return remarks to be shown with the table."""
    found = [*result.notes]
    for row in result.rows:
        found += [f"{row.name}: {note}" for note in row.notes]
    by = {row.predicted_by for row in result.rows if row.predicted_by}
    if by:
        found.append(f"predicted by {', '.join(sorted(by))} in the report of {result.rows[0].name}")
    if result.ended < result.planned:
        found.append(f"{result.planned - result.ended} runs are missing; the same command with --dir goes on")
    return found
