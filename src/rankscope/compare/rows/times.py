"""Parts of the ranks' recorded steps, as means over the ranks; they add up to the step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.compare.sides.noise import between_chance, combined, within_chance, within_run
from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffRow
from rankscope.records.rank_window import RankWindow, StepColumns

__all__ = ["time_rows"]


def time_rows(before: Side, after: Side) -> list[DiffRow]:
    """Return a row for each part."""
    both = [side.ranks for side in (before, after)]
    if not all(both):
        return []
    rows = []
    for name in ("compute", "communication, exposed", "copies", "input", "idle"):
        ours, theirs = (_means(ranks, name) for ranks in both)
        if not (len(ours) and len(theirs)):
            continue
        one, other = float(np.median(ours)), float(np.median(theirs))
        floor = before.usual_changes["device_bound" if name == "compute" else "collective"] * max(one, other)
        within = combined(within_run(ours), within_run(theirs))
        noise = max(floor, within)
        chance = max(between_chance(other - one, floor), within_chance(other - one, ours, theirs, within))
        rows.append(
            DiffRow(
                kind="time",
                name=name,
                unit="ms",
                before=one,
                after=other,
                change=other - one,
                noise=noise,
                chance=chance,
                told=abs(other - one) > noise,
            )
        )
    return rows


def _means(ranks: Sequence[RankWindow], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the mean over the ranks for each step, of all windows one after the other, ms."""
    found = []
    for window in sorted({(own.attempt, own.window) for own in ranks}):
        own = [_spent(r.steps, name) for r in ranks if (r.attempt, r.window) == window and r.steps.number]
        size = min(map(len, own), default=0)
        if size:
            found.append(np.mean([values[:size] for values in own], axis=0) / 1e6)
    return np.concatenate(found) if found else np.empty(0)


def _spent(steps: StepColumns, name: str) -> list[int]:
    if name == "compute":
        return steps.compute_ns
    if name == "communication, exposed":
        return steps.exposed_ns
    if name == "copies":
        return steps.copy_ns
    if name == "input":
        return steps.input_ns
    columns = (steps.length_ns, steps.compute_ns, steps.exposed_ns, steps.copy_ns, steps.input_ns)
    return [max(length - sum(rest), 0) for length, *rest in zip(*columns, strict=True)]
