"""The columns of one trace as a Parquet file. They are a public format: see docs/parquet.md."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np

from rankscope.limits import Rank
from rankscope.records.codec import from_json
from rankscope.trace.columns import (
    EVENT_DTYPES,
    Category,
    Collectives,
    DeviceMemory,
    Events,
    Group,
    Piece,
    PythonCalls,
    RankTrace,
    Steps,
    TraceMeta,
)
from rankscope.trace.files.consistency import require_consistent

__all__ = ["KEY", "PARQUET_VERSION", "events_table", "read_columns", "write_columns"]

PARQUET_VERSION = 4
"""To be raised whenever a column or its meaning changes."""
KEY = b"rankscope.key"
"""Metadata key of a file written by rankscope, for the key of the columns."""
_ABOUT = b"rankscope.trace"
_SUM = b"rankscope.sum"
_PLAIN = {**EVENT_DTYPES, "launch": np.int32, "step": np.int32}
del _PLAIN["name"], _PLAIN["shape"]
_GIVEN = ("name", *_PLAIN)
"""Columns that every event has."""
_TEXTS = ("name", "shape", "collective", "comms_id", "dtype", "pieces")
_ASCENDING = ("start", "position", "external_id")
"""Columns that mostly ascend: stored as differences, they make a trace an eighth smaller, in less time."""
_FEW_VALUES = ("category", "pid", "tid", "stream")
"""Columns of numbers that are stored like texts, as codes into the few values that they have."""
_SCATTERED = ("name", "duration", "correlation", "launch")
"""Columns that zstd makes clearly smaller than LZ4. With LZ4 for all others, columns are read in up to a third less
time, and a trace is at most 5 % larger."""
_CALLS = {"group": np.int32, "seq": np.int64, "in_elements": np.int64, "out_elements": np.int64, "peer": np.int32}


def write_columns(trace: RankTrace, target: str | BinaryIO, key: bytes) -> None:
    """Write the columns of a trace as Parquet.

    Args:
        trace: any trace.
        target: a file name, or an open file.
        key: has to be passed to :func:`read_columns`, which rejects columns with another key.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    about, table = _about(trace), _table(trace, pa)
    pq.write_table(
        table.replace_schema_metadata({KEY: key, _ABOUT: about, _SUM: _sum(about)}),
        target,
        compression={name: "zstd" if name in _SCATTERED else "lz4" for name in table.column_names},
        compression_level=dict.fromkeys(_SCATTERED, 1),
        use_dictionary=[*_TEXTS, *_FEW_VALUES],
        column_encoding=dict.fromkeys(_ASCENDING, "DELTA_BINARY_PACKED"),
        dictionary_pagesize_limit=64 << 20,
        row_group_size=1 << 24,
        write_statistics=["start", "step", "category"],
        write_page_checksum=True,
    )


def read_columns(stream: Any, size: int, path: Path, key: bytes) -> RankTrace | None:
    """Read what :func:`write_columns` wrote; None if it was written with another key. Any error may be raised.

    Args:
        stream: a file or buffer of Arrow.
        size: its size in bytes.
        path: the trace file that the columns belong to.
        key: the key that they were written with.
    """
    import pyarrow.parquet as pq

    # What is in memory or on a local disk is not worth fetching ahead.
    with pq.ParquetFile(
        stream, read_dictionary=list(_TEXTS), page_checksum_verification=True, pre_buffer=False
    ) as file:
        metadata = file.metadata.metadata or {}
        about = metadata.get(_ABOUT, b"")
        if metadata.get(KEY) != key or metadata.get(_SUM) != _sum(about):
            return None
        if file.metadata.num_rows > size:  # an event takes at least ten bytes
            return None
        trace = _trace(path, file.read(use_threads=False), *_read_about(about))
    require_consistent(trace)
    return trace


def _sum(about: bytes) -> bytes:
    """Return a checksum, because Parquet has checksums of its pages but not of its footer."""
    return b"%08x" % zlib.crc32(about)


def _about(trace: RankTrace) -> bytes:
    return msgspec.json.encode(
        {
            "rank": trace.rank,
            "meta": dataclasses.asdict(trace.meta),
            "steps": [trace.steps.number.tolist(), trace.steps.start.tolist(), trace.steps.duration.tolist()],
            "groups": [[g.name, g.description, list(g.ranks)] for g in trace.groups],
            "memory": [dataclasses.asdict(m) for m in trace.memory],
            "repairs": trace.repairs,
            "notes": trace.notes,
            "dropped": trace.dropped,
        }
    )


def _table(trace: RankTrace, pa: Any) -> Any:
    """Return a table with one row per event, followed by one per Python call; columns of collectives are null
    elsewhere."""
    events, calls = _with_python(trace), trace.collectives
    rows = len(events)
    columns: dict[str, Any] = {"name": _texts(events.name, trace.strings, pa)}
    columns |= {key: _numbers(getattr(events, key), pa) for key in _PLAIN}
    columns["shape"] = _texts(events.shape, trace.strings, pa)
    absent = np.ones(rows, bool)
    absent[calls.event] = False
    spelled = {pieces: _spelled(pieces) for pieces in set(calls.pieces)}
    for key, values in (
        ("collective", calls.kind),
        ("comms_id", calls.comms_id),
        ("dtype", calls.dtype),
        ("pieces", [spelled[p] for p in calls.pieces]),
    ):
        known = {text: code for code, text in enumerate(dict.fromkeys(values))}
        codes = np.full(rows, -1, np.int32)
        codes[calls.event] = [known[v] for v in values]
        columns[key] = _texts(codes, list(known), pa)
    for key, kind in _CALLS.items():
        whole = np.zeros(rows, kind)
        whole[calls.event] = getattr(calls, key)
        columns[key] = _numbers(whole, pa, absent)
    # Without nulls, nothing is read to find them.
    kinds = [pa.field(key, column.type, nullable=key not in _GIVEN) for key, column in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(kinds))


def _with_python(trace: RankTrace) -> Events:
    """Return the events, followed by the Python calls as events of their class."""
    events, python = trace.events, trace.python
    if not len(python):
        return events
    added: dict[str, Any] = {key: np.full(len(python), -1, getattr(events, key).dtype) for key in events.__slots__}
    added |= {"start": python.start, "duration": python.duration, "name": python.name, "tid": python.tid}
    added["category"] = np.full(len(python), Category.PYTHON_FUNCTION, np.int8)
    added["bandwidth_gb_s"] = np.zeros(len(python))
    return Events(**{key: np.concatenate((getattr(events, key), column)) for key, column in added.items()})


def events_table(traces: Sequence[RankTrace]) -> Any:
    """Return the events of several traces as one ``pyarrow.Table``, each row with its ``attempt``, ``window`` and
    ``rank``."""
    import pyarrow as pa

    tables = []
    for trace in traces:
        table = _table(trace, pa)
        for place, name in enumerate(("attempt", "window", "rank")):
            values = np.full(len(table), getattr(trace, name), np.int32)
            table = table.add_column(place, name, pa.array(values))
        tables.append(table)
    return pa.concat_tables(tables).unify_dictionaries()


def _spelled(pieces: tuple[Piece, ...]) -> str:
    """Return ``send 2 65536; recv 0 65536``: direction, peer and elements of each piece; -1 if unknown."""
    return "; ".join(f"{'send' if p.sends else 'recv'} {p.peer} {p.elements}" for p in pieces)


def _pieces(text: str) -> tuple[Piece, ...]:
    words = (piece.split(" ") for piece in text.split("; ") if piece)
    return tuple(Piece(way == "send", int(peer), int(elements)) for way, peer, elements in words)


def _texts(codes: Any, strings: list[str], pa: Any) -> Any:
    """Return codes into ``strings`` (-1: null) as a dictionary of only the strings used."""
    used, small = np.unique(codes, return_inverse=True)
    if len(used) and used[0] < 0:
        used, small = used[1:], small - 1
    indices = small.astype(np.int32).reshape(-1)
    encoded = [strings[i].encode() for i in used.tolist()]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    texts = pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))
    return pa.DictionaryArray.from_arrays(_numbers(indices, pa, indices < 0), texts)


def _numbers(values: Any, pa: Any, absent: Any = None) -> Any:
    """Return a column of numbers. Here and below it is built from buffers: pyarrow's conversions would import pandas
    first."""
    validity = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, pa.py_buffer(values)])


def _whole(column: Any) -> Any:
    """Return the array of a column, which is copied only if it was read in several parts."""
    array = column if column.num_chunks == 1 else column.combine_chunks()
    return array.chunk(0) if hasattr(array, "chunks") else array


def _array(array: Any, kind: Any) -> Any:
    """Return the numbers of an array, writable like newly decoded ones; values of nulls are undefined. They are the
    buffer into which Arrow has read them, unless that is not to be written to."""
    numbers = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * np.dtype(kind).itemsize)
    return numbers if numbers.flags.writeable else numbers.copy()


def _codes(column: Any) -> tuple[Any, list[str]]:
    """Return codes (-1 for null) and strings of a dictionary column."""
    array = _whole(column.unify_dictionaries())
    codes, validity = _array(array.indices, np.int32), array.indices.buffers()[0]
    if validity is not None:
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
        codes[bits[array.offset : array.offset + len(codes)] == 0] = -1
    return codes, array.dictionary.to_pylist()


def _each(values: list[Any], codes: Any) -> list[Any]:
    """Return the value of each code."""
    return list(np.fromiter(values, object, len(values))[codes].tolist())


@dataclasses.dataclass(kw_only=True)
class _About:
    """Parts of a trace other than its columns."""

    rank: Rank | None
    meta: TraceMeta
    steps: list[list[int]]
    memory: list[DeviceMemory]
    repairs: dict[str, int]
    notes: list[str]
    dropped: dict[str, int]


def _read_about(text: bytes) -> tuple[_About, list[Group]]:
    parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    groups = msgspec.json.decode(parts.pop("groups"), type=list[tuple[str, str, msgspec.Raw]])
    return from_json(_About, msgspec.json.encode(parts)), [Group(n, d, _members(bytes(r))) for n, d, r in groups]


@functools.lru_cache(maxsize=1 << 14)
def _members(text: bytes) -> tuple[int, ...]:
    """Return the ranks of a group. Each of its members lists all of them; they are read once."""
    return msgspec.json.decode(text, type=tuple[Annotated[int, msgspec.Meta(ge=0)], ...])


def _trace(path: Path, table: Any, about: _About, groups: list[Group]) -> RankTrace:
    name, names = _codes(table["name"])
    shape, shapes = _codes(table["shape"])
    columns = {key: _array(_whole(table[key]), kind) for key, kind in _PLAIN.items()}
    columns |= {"name": name, "shape": np.where(shape < 0, -1, shape + len(names)).astype(np.int32)}
    collective, kinds = _codes(table["collective"])
    rows = np.flatnonzero(collective >= 0)
    texts: dict[str, Any] = {"kind": _each(kinds, collective[rows])}
    for key in ("comms_id", "dtype", "pieces"):
        array = _whole(table[key].unify_dictionaries())
        texts[key] = _each(array.dictionary.to_pylist(), _array(array.indices, np.int32)[rows])
    pieces = {text: _pieces(text) for text in set(texts["pieces"])}
    texts["pieces"] = [pieces[text] for text in texts["pieces"]]
    texts |= {key: _array(_whole(table[key]), kind)[rows] for key, kind in _CALLS.items()}
    steps = [np.array(v, np.int64) for v in about.steps]
    calls = columns["category"] == Category.PYTHON_FUNCTION
    python = PythonCalls(*(columns[key][calls] for key in ("start", "duration", "name", "tid")))
    if calls.any():
        columns = {key: column[~calls] for key, column in columns.items()}
    return RankTrace(
        source=str(path),
        rank=about.rank,
        meta=about.meta,
        strings=names + shapes,
        events=Events(**columns),
        steps=Steps(*steps),
        groups=groups,
        collectives=Collectives(event=rows.astype(np.int32), **texts),
        memory=about.memory,
        repairs=about.repairs,
        notes=about.notes,
        dropped=about.dropped,
        python=python,
    )
