"""Read one file: text -> rows -> sorted columns -> links -> RankTrace."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.errors import TraceError
from rankscope.rundir.foreign import shown
from rankscope.trace import peers
from rankscope.trace.columns import EVENT_DTYPES, Category, Events, PythonCalls, RankTrace, TraceMeta
from rankscope.trace.format import Format
from rankscope.trace.kineto import link, meta, repair
from rankscope.trace.kineto.call_notes import KEY as NOTES
from rankscope.trace.kineto.call_notes import notes_of
from rankscope.trace.kineto.chunks import MAX_HEAD_BYTES, split
from rankscope.trace.kineto.collectives import build_collectives
from rankscope.trace.kineto.decode import Decoder
from rankscope.trace.kineto.events import Args
from rankscope.trace.kineto.memory import NO_SAMPLES, device_memory
from rankscope.trace.kineto.merged import processes
from rankscope.trace.kineto.rows import Rows
from rankscope.trace.read import Reader
from rankscope.trace.steps import step_of

__all__ = ["FORMAT", "read_trace", "read_traces"]

_SIGNS = (b'"traceEvents"', b'"deviceProperties"', b'"baseTimeNanoseconds"', b'"distributedInfo"')
_EVENT = re.compile(rb'^(?:\xef\xbb\xbf)?\s*\[\s*(?:\{[^{}\[\]]*"ph"\s*:|\])', re.S)
"""A file that consists of the list of events only, which may be empty."""
_ABSOLUTE_NS = 10**18
"""Times above (September 2001) are already on the absolute clock."""


def read_trace(path: Path) -> RankTrace:
    """Decode a trace file of one process.

    Raises:
        TraceError: the file is not a trace, nothing of it can be used, or it holds several ranks.
    """
    traces = read_traces(path)
    if len(traces) > 1:
        raise TraceError(f"{path}: holds {len(traces)} ranks; read_traces reads them all")
    return traces[0]


def read_traces(path: Path) -> list[RankTrace]:
    """Decode one trace file: one trace, or, for a merged file, one for each rank in it.

    ``rank`` is the one in the content; file names are not considered.

    Args:
        path: Kineto or Chrome trace JSON, plain or gzip.

    Raises:
        TraceError: the file is not a trace, nothing of it can be used, or it holds ranks that cannot be distinguished.
    """
    reader = Reader(path)
    decoder = Decoder()
    chunks: list[Rows] = []
    notes: list[str] = []
    head, tail, after_end = b"", b"", False
    with _collector_off():
        for part in split(iter(reader), str(path)):
            if after_end:  # the list ended in an earlier part; the rest is metadata
                tail += part.glue + part.text
                if len(tail) > MAX_HEAD_BYTES:
                    raise TraceError(f"{shown(path)}: {len(tail)} bytes after the list of events: not a profiler trace")
            elif part.kind == "events":
                rows, rest = decoder.chunk(part.text, part.offset, part.separator)
                chunks.append(rows)
                if rest is not None:
                    tail, after_end = rest, True
            elif part.kind == "head":
                head = part.text
            elif part.kind == "tail":
                tail = part.text
            else:
                decoder.repairs[repair.TRUNCATED] += 1
                notes.append(reader.damage or f"the text ends within the events, at byte {reader.plain_bytes}")
                tail = b"}"
        decoder.finish()
    if reader.damage and repair.TRUNCATED not in decoder.repairs:
        decoder.repairs[repair.TRUNCATED] += 1
        notes.append(reader.damage)
    raw, kinds = meta.parse_head(head, tail)
    decoder.repairs.update(kinds)
    decoder.repairs.update(meta.repairs_before(raw))
    return _assemble(path, decoder, chunks, raw, notes)


def _assemble(
    path: Path, decoder: Decoder, chunks: list[Rows], raw: dict[str, Any], notes: list[str]
) -> list[RankTrace]:
    columns = {
        # popped, so that two copies of a column exist only briefly
        key: np.concatenate([c.columns.pop(key) for c in chunks]) if chunks else np.empty(0, dtype)
        for key, dtype in EVENT_DTYPES.items()
    }
    comms = [pair for c in chunks for pair in c.comms]
    memory = np.concatenate([NO_SAMPLES, *(c.memory for c in chunks)], axis=1)
    chunks.clear()
    lost = sum(decoder.repairs.values())
    if not len(columns["start"]) and not (decoder.dropped and not lost):
        raise TraceError(f"{path}: no usable event ({decoder.position} read, {lost} damaged); record the window again")
    if (columns["category"] == Category.OTHER).all():
        raise TraceError(
            f"{path}: no event was understood: none of {decoder.position} is an operator, a call or device work as "
            "torch.profiler writes them; is it the trace of another profiler?"
        )
    about, remarks = meta.typed(raw)
    notes += remarks + decoder.places
    if about.base_ns and int(columns["start"].min()) < _ABSOLUTE_NS:
        columns["start"] += about.base_ns
        memory[0] += about.base_ns
    elif about.base_ns:
        notes.append("times are absolute already; baseTimeNanoseconds was not added")
    strings = list(decoder.symbols.strings)
    parts = processes(columns, strings, decoder.symbols.texts, decoder.labels, str(path))
    if not parts:
        return [_trace(path, decoder, columns, comms, memory, about, notes)]
    # Rank, process groups and memory samples in the head belong to one of the processes, or to none.
    about.rank = None
    about.raw = {k: v for k, v in about.raw.items() if k not in ("distributedInfo", NOTES)}
    traces = []
    for part in parts:
        own = {key: column[part.rows] for key, column in columns.items()}
        positions = set(own["position"].tolist())
        all_notes = [*notes, f"one of {len(parts)} processes in a merged file, told by its process ids ({part.label})"]
        trace = _trace(
            path, decoder, own, [c for c in comms if c[0] in positions], NO_SAMPLES, replace(about), all_notes
        )
        trace.part = part.label
        traces.append(trace)
    return traces


def _trace(
    path: Path,
    decoder: Decoder,
    columns: dict[str, NDArray[Any]],
    comms: list[tuple[int, Args]],
    memory: NDArray[np.int64],
    about: TraceMeta,
    notes: list[str],
) -> RankTrace:
    order = _in_time(columns["start"], columns["duration"])
    for key in columns:
        columns[key] = columns[key][order]
    columns, python = _apart(columns)
    damaged = link.misplaced(*(columns[key] for key in ("category", "pid", "stream", "start", "duration")))
    if len(damaged):
        columns = {key: np.delete(column, damaged) for key, column in columns.items()}
        decoder.repairs[repair.MISPLACED] += len(damaged)
        left = set(columns["position"].tolist())
        comms = [pair for pair in comms if pair[0] in left]
    strings = list(decoder.symbols.strings)
    launch = link.link_launches(columns["category"], columns["correlation"], columns["start"])
    events = Events(launch=launch, step=np.full(len(launch), -1, np.int32), **columns)
    count, nanoseconds = link.overruns(events.category, events.pid, events.stream, events.start, events.duration)
    if count:
        notes.append(
            f"{count} kernels or copies end after the next one of their stream begins, by {nanoseconds / 1000:.1f} us "
            "in all: their durations are kept as recorded"
        )
    steps = link.find_steps(events, strings)
    if link.counted_on(steps):
        notes.append("step marks repeat their numbers: the steps are counted on from the first")
    events.step = step_of(events, steps)
    about.device = meta.device_name(about.raw, _device(events))
    args = _by_row(columns["position"], comms)
    known = meta.groups_of(about.raw)
    noted = notes_of(about.raw)
    about.raw = meta.without_groups({key: value for key, value in about.raw.items() if key != NOTES})
    collectives, groups, about.peers = build_collectives(events, strings, args, known, about.rank, noted)
    if about.peers in peers.REMARKS:
        notes.append(peers.REMARKS[about.peers])
    if not len(steps):
        notes.append("no ProfilerStep: numbers per step are unavailable")
    dropped = {kind: count for kind, count in sorted(decoder.dropped.items()) if kind != "Trace"}
    for kind, count in dropped.items():
        if kind != "python_function":  # of these only short calls of built-in functions are left out
            notes.append(f"not read: {count} events of class {kind}; no analysis uses them")
    return RankTrace(
        source=str(path),
        rank=about.rank,
        meta=about,
        strings=strings,
        events=events,
        steps=steps,
        groups=groups,
        collectives=collectives,
        memory=device_memory(memory, steps),
        python=python,
        repairs=dict(decoder.repairs),
        notes=notes,
        dropped=dropped,
    )


def _apart(columns: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], PythonCalls]:
    """Split the events into those without calls of Python functions, and these calls."""
    python = columns["category"] == Category.PYTHON_FUNCTION
    if not python.any():
        return columns, PythonCalls.none()
    calls = PythonCalls(*(columns[key][python] for key in ("start", "duration", "name", "tid")))
    return {key: column[~python] for key, column in columns.items()}, calls


def _in_time(start: NDArray[np.int64], duration: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order by start; ties: the longer first, then as in the file. Kineto writes sorted runs, which sorting
    by one key exploits."""
    order = np.argsort(start, kind="stable")
    inorder = start[order]
    tied = np.zeros(len(order) + 1, bool)
    tied[1:-1] = inorder[1:] == inorder[:-1]
    places = np.flatnonzero(tied[1:] | tied[:-1])
    rows = order[places]  # rows of equal start are adjacent, and stay so
    order[places] = rows[np.lexsort((-duration[rows], start[rows]))]
    return order


def _by_row(position: NDArray[np.int64], comms: list[tuple[int, Args]]) -> dict[int, Args]:
    """Convert position in the file to row of the sorted columns, for the few events with arguments."""
    if not comms:
        return {}
    order = np.argsort(position, kind="stable")
    rows = order[np.searchsorted(position[order], np.array([p for p, _ in comms]))]
    return {int(row): args for row, (_, args) in zip(rows, comms, strict=True)}


def _device(events: Events) -> int | None:
    """Return the device that most kernels ran on."""
    pids = events.pid[events.category == Category.KERNEL]
    if not len(pids):
        return None
    values, counts = np.unique(pids, return_counts=True)
    return int(values[counts.argmax()])


@contextmanager
def _collector_off() -> Iterator[None]:
    """Switch the garbage collector off: with millions of small objects without cycles it would only traverse them
    repeatedly."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


FORMAT = Format(
    name="Kineto",
    files=r"\.(?:json|trace)(?:\.gz|\.tmp|\.part)*$|\.json\b.*\.tmp$",
    fits=lambda head: any(sign in head for sign in _SIGNS) or _EVENT.match(head) is not None,
    read=read_traces,
)
"""Output of torch.profiler and libkineto, and Chrome trace JSON with their event classes."""
