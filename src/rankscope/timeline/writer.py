"""The lines of a merged timeline, from the process names to the last bracket."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.windows.analyse import WindowResult
from rankscope.causes.wording import cause_record
from rankscope.errors import ConfigError
from rankscope.timeline import derived_tracks as derived
from rankscope.timeline.flow_events import call_arrows, count_launches, launches
from rankscope.timeline.json_lines import ARROW_BYTES, arrow, slice_line
from rankscope.timeline.names import quoted
from rankscope.timeline.prepare import PreparedTimeline
from rankscope.timeline.rank_slices import Part, event_lines, make_part, track_count
from rankscope.timeline.selection import Selection
from rankscope.timeline.size_limit import choose
from rankscope.timeline.tracks import Tracks, lanes

__all__ = ["Merged", "lines"]

I64 = NDArray[np.int64]

_RANK_BYTES = 3000
"""Bytes reserved for a rank's name and label; each track takes ``_TRACK_BYTES``."""
_TRACK_BYTES = 300
_FOOT_BYTES = 20_000
_STRAGGLER, _STEPS, _PATH, _WAIT, _TRANSFER = range(5)
"""Order of the derived tracks within a rank; the recorded ones follow."""


@dataclass(slots=True)
class Merged:
    """Result of writing."""

    path: Path
    slices: int = 0
    arrows: int = 0
    json_bytes: int = 0
    """Uncompressed size."""
    most_bytes: int = 0
    """Upper bound of the size, known before the events are written."""
    file_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def lines(
    prepared: PreparedTimeline, wanted: Sequence[tuple[WindowResult, int]], selection: Selection, merged: Merged
) -> Iterator[str]:
    """Yield the whole file line by line, at most ``selection.max_bytes``.

    Args:
        prepared: the analysed windows, and the zero of all times.
        wanted: windows, and the column of a rank in each.
        selection: steps, ranks and categories to show, and the largest size.
        merged: gets the numbers of slices and arrows, and what was left out.

    Raises:
        ConfigError: not even the steps, waits and transfers fit.
    """
    tracks = Tracks()
    _name_ranks(tracks, wanted)
    names = tracks.take_lines()
    paths = {id(window): derived.path_slices(window) for window, _ in wanted}
    own = [
        line
        for window, column in wanted
        for line in _own_tracks(prepared, window, column, selection, tracks, paths[id(window)].get(column, []))
    ]
    merged.slices += len(own)
    parts = [make_part(window, column, selection) for window, column in wanted]
    own_bytes = sum(map(len, own)) + 2 * len(own) + len(wanted) * (_RANK_BYTES + 8 * _TRACK_BYTES)
    shown, linked = _fitting(parts, own_bytes, selection, merged)
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    yield ",\n".join([*names, *own])
    for part, rows in zip(parts, shown, strict=True):
        for line in event_lines(prepared.base_ns, part, rows, tracks, launches=linked):
            merged.slices += 1
            yield f",\n{line}"
    for line in _arrows(parts, merged, linked=linked):
        yield f",\n{line}"
    for line in tracks.take_lines():
        yield f",\n{line}"
    about = {
        "base_ns": prepared.base_ns,
        "max_bytes": selection.max_bytes,
        "left_out": merged.left_out[:20],
        "notes": [note[:200] for note in merged.notes[:10]],
    }
    yield f'\n],"rankscope":{json.dumps(about)}}}\n'


def _fitting(parts: Sequence[Part], own_bytes: int, selection: Selection, merged: Merged) -> tuple[list[I64], bool]:
    """Return the rows of each part that fit beside the derived tracks, and whether arrows from launches fit as well."""
    fixed = own_bytes + _FOOT_BYTES + sum(map(track_count, parts)) * _TRACK_BYTES
    room = selection.max_bytes - fixed
    if room < 0:
        raise ConfigError(
            f"steps, waits and transfers alone need more than --max-mb {selection.max_mb:g}; "
            "choose fewer --steps or --ranks, or a higher bound"
        )
    chosen = choose([p.classes for p in parts], [p.length for p in parts], [p.cost for p in parts], room)
    merged.left_out += chosen.left_out
    merged.most_bytes = fixed + chosen.bytes
    rows = [part.rows[keep] for part, keep in zip(parts, chosen.keep, strict=True)]
    total = sum(map(count_launches, parts, rows))
    linked = chosen.bytes + 2 * ARROW_BYTES * total <= room
    if total and not linked:
        merged.left_out.append(f"all {total:,} arrows from launches to kernels")
    return rows, linked


def _arrows(parts: Sequence[Part], merged: Merged, *, linked: bool) -> Iterator[str]:
    """Yield the arrows of collectives and, if ``linked``, of launches. Their number is the last one's identifier."""
    for line, new in call_arrows(parts):
        merged.arrows += new
        yield line
    for part in parts if linked else ():
        for source, target in launches(part):
            merged.arrows += 1
            yield arrow("s", merged.arrows, *part.places[source], "launch")
            yield arrow("f", merged.arrows, *part.places[target], "launch")


def _name_ranks(tracks: Tracks, wanted: Sequence[tuple[WindowResult, int]]) -> None:
    seen: set[int] = set()
    digits = max(len(str(window.views[column].rank)) for window, column in wanted)
    for window, column in wanted:
        view = window.views[column]
        if view.rank in seen:
            continue
        seen.add(view.rank)
        meta, clocks = view.trace.meta, window.clocks
        words = [word[:60] for word in (meta.host, meta.device) if word]
        if clocks.method != "none":
            error = "" if clocks.error_ns is None else f" within {clocks.error_ns / 1e3:.1f} us"
            words.append(f"clock {float(clocks.offset[column]) / 1e3:+.1f} us{error}")
        tracks.name_process(view.rank, f"rank {view.rank:0{digits}}", ", ".join(words))


def _own_tracks(
    prepared: PreparedTimeline,
    window: WindowResult,
    column: int,
    selection: Selection,
    tracks: Tracks,
    path: list[derived.Slice],
) -> Iterator[str]:
    rank = window.views[column].rank
    waiting, moving = derived.waits_and_transfers(window, column, derived.wanted_calls(window, column, selection))
    cause = cause_record(prepared.verdict.cause).noun if prepared.verdict.cause else ""
    shown = derived.steps(window, column, selection)
    spans = [(s.start, s.end) for s in shown]

    def wanted(slices: list[derived.Slice]) -> list[derived.Slice]:
        if selection.steps is None:
            return slices
        return [s for s in slices if any(s.start < end and begin < s.end for begin, end in spans)]

    marks = wanted(derived.straggler_intervals(window, column, prepared.verdict))
    for key, order, slices in (
        (f"verdict: {cause}", _STRAGGLER, marks),
        ("steps", _STEPS, shown),
        ("critical path", _PATH, wanted(path)),
        ("wait", _WAIT, waiting),
        ("transfer", _TRANSFER, moving),
    ):
        ordered = sorted(slices, key=lambda s: (s.start, -s.end))
        start = np.array([s.start for s in ordered], np.int64)
        end = np.array([s.end for s in ordered], np.int64)
        for piece, lane in zip(ordered, lanes(start, end).tolist(), strict=True):
            tid = tracks.thread(rank, key, lane, key, order)
            begin, until = piece.start - prepared.base_ns, piece.end - prepared.base_ns
            kind = key.partition(":")[0]
            yield slice_line(tracks.process(rank), tid, begin, until, kind, quoted(piece.name), piece.args)
