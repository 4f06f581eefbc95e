"""The lines of a merged timeline, from the process names to the last bracket."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rankscope.analysis.windows.analyse import WindowResult
from rankscope.causes.wording import cause_record
from rankscope.errors import ConfigError
from rankscope.timeline import derived_tracks as derived
from rankscope.timeline.flow_events import call_arrows, count_launches, launches
from rankscope.timeline.json_lines import ARROW_BYTES, arrow, slice_line
from rankscope.timeline.names import quoted
from rankscope.timeline.prepare import PreparedTimeline
from rankscope.timeline.rank_slices import event_lines, make_part, track_count
from rankscope.timeline.selection import Selection
from rankscope.timeline.size_limit import choose
from rankscope.timeline.tracks import Tracks, lanes

__all__ = ["Merged", "lines"]

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
    """Yield the whole file line by line, at most ``selection.max_bytes``."""
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
    count = sum(track_count(part) for part in parts)
    fixed = sum(map(len, own)) + 2 * len(own) + _FOOT_BYTES + len(wanted) * (_RANK_BYTES + 8 * _TRACK_BYTES)
    room = selection.max_bytes - fixed - count * _TRACK_BYTES
    if room < 0:
        raise ConfigError(
            f"steps, waits and transfers alone need more than --max-mb {selection.max_mb:g}; "
            "choose fewer --steps or --ranks, or a higher bound"
        )
    chosen = choose([p.classes for p in parts], [p.length for p in parts], [p.cost for p in parts], room)
    merged.left_out += chosen.left_out
    merged.most_bytes = fixed + count * _TRACK_BYTES + chosen.bytes
    shown = [part.rows[keep] for part, keep in zip(parts, chosen.keep, strict=True)]
    total = sum(count_launches(part, rows) for part, rows in zip(parts, shown, strict=True))
    linked = chosen.bytes + 2 * ARROW_BYTES * total <= room
    if total and not linked:
        merged.left_out.append(f"all {total:,} arrows from launches to kernels")
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    yield ",\n".join([*names, *own])
    for part, rows in zip(parts, shown, strict=True):
        for line in event_lines(prepared.base_ns, part, rows, tracks, launches=linked):
            merged.slices += 1
            yield f",\n{line}"
    number = 0
    for line, new in call_arrows(parts):
        number += new
        merged.arrows += new
        yield f",\n{line}"
    for part in parts if linked else ():
        for source, target in launches(part):
            number += 1
            merged.arrows += 1
            for phase, place in (("s", part.places[source]), ("f", part.places[target])):
                yield f",\n{arrow(phase, number, *place, 'launch')}"
    for line in tracks.take_lines():
        yield f",\n{line}"
    about = {
        "base_ns": prepared.base_ns,
        "max_bytes": selection.max_bytes,
        "left_out": merged.left_out[:20],
        "notes": [note[:200] for note in merged.notes[:10]],
    }
    yield f'\n],"rankscope":{json.dumps(about)}}}\n'


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
