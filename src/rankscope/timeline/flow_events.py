"""Arrows between slices: the ranks of one collective, and launches with the work they launched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.timeline.json_lines import arrow
from rankscope.timeline.rank_slices import Part

__all__ = ["call_arrows", "count_launches", "launches"]


def call_arrows(parts: Sequence[Part]) -> Iterator[tuple[str, int]]:
    """Yield each matched call as one chain over its ranks in order of arrival. The second value is 1 on its first
    line."""
    number = 0
    for window in dict.fromkeys(id(p.window) for p in parts):
        members = [p for p in parts if id(p.window) == window]
        ends: dict[int, list[tuple[int, int, int]]] = {}
        for part in members:
            trace = part.window.views[part.column].trace
            matched = part.window.matched
            events = trace.collectives.event[matched.row[matched.at(part.calls, part.column)]]
            for call, event in zip(part.calls.tolist(), events.tolist(), strict=True):
                if event in part.places:
                    ends.setdefault(call, []).append(part.places[event])
        for _, places in sorted(ends.items()):
            if len(places) < 2:
                continue
            number += 1
            places.sort(key=lambda place: (place[2], place[0]))
            for index, place in enumerate(places):
                phase = "s" if index == 0 else "f" if index == len(places) - 1 else "t"
                yield arrow(phase, number, *place, "collective"), int(index == 0)


def count_launches(part: Part, rows: NDArray[np.int64]) -> int:
    """Return the largest number of arrows that :func:`launches` can find once these rows are written."""
    launch = part.window.views[part.column].trace.events.launch
    shown = np.zeros(len(launch), np.bool_)
    shown[rows] = True
    source = launch[rows]
    return int(shown[source[source >= 0]].sum())


def launches(part: Part) -> list[tuple[int, int]]:
    """Return (launching call, work on the device) if both are shown and in order of time."""
    launch = part.window.views[part.column].trace.events.launch
    return [
        (source, row)
        for row, place in part.places.items()
        if (source := int(launch[row])) in part.places and part.places[source][2] <= place[2]
    ]
