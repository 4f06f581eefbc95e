"""Decoded events -> numpy columns. Each column is collected only for categories that can have a value."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import Category
from rankscope.trace.kineto import numbers, repair
from rankscope.trace.kineto.events import NO_ARGS, NO_RAW, Args
from rankscope.trace.kineto.memory import NO_SAMPLES

__all__ = ["Rows", "Symbols", "make_rows"]

I64 = NDArray[np.int64]


MAX_NAME = 1 << 14
"""Largest number of characters of a name; the longest kernel names, with all template arguments, have some
thousands."""


class _Interner(dict[str, int]):
    """Text -> code, in order of appearance."""

    def __missing__(self, key: Any) -> int:
        if key.__class__ is not str:
            return self["" if key is None else str(key)[:200]]
        if len(key) > MAX_NAME:
            digest = zlib.crc32(key.encode("utf-8", "replace"))
            return self[f"{key[: MAX_NAME - 60]}... ({len(key)} characters, CRC-32 {digest:08x})"]
        code = self[key] = len(self)
        return code


class _Shapes(dict[bytes, int]):
    """Raw JSON of a shape -> code of its text; each distinct one is decoded once. None: -1."""

    def __init__(self, strings: _Interner) -> None:
        super().__init__({b"": -1})
        self.strings = strings

    def __missing__(self, key: bytes) -> int:
        code = self[key] = self.strings[key.decode("utf-8", "replace")]
        return code


class _Grids(dict[tuple[bytes, bytes], int]):
    """Raw JSON of grid and block -> code of its text. Without a grid: -1."""

    def __init__(self, strings: _Interner) -> None:
        super().__init__()
        self.strings = strings

    def __missing__(self, key: tuple[bytes, bytes]) -> int:
        text = b"grid %b block %b" % key
        code = self[key] = self.strings[text.decode("utf-8", "replace")] if key[0] else -1
        return code


@dataclass(slots=True)
class Symbols:
    """Codes shared by all chunks of a file."""

    strings: _Interner = field(default_factory=_Interner)
    shapes: _Shapes = field(init=False)
    grids: _Grids = field(init=False)
    texts: dict[str, int] = field(default_factory=dict)
    """Process and thread ids that are words."""

    def __post_init__(self) -> None:
        self.shapes = _Shapes(self.strings)
        self.grids = _Grids(self.strings)


@dataclass(slots=True)
class Rows:
    """Events of one chunk, column by column; times in ns relative to the file's own origin."""

    columns: dict[str, NDArray[Any]]
    comms: list[tuple[int, Args]]
    """Position and args of every event that names its collective."""
    memory: I64 = field(default_factory=lambda: NO_SAMPLES)
    """Samples of device memory; see :mod:`rankscope.trace.kineto.memory`."""


def make_rows(
    chosen: list[Any],
    category: NDArray[np.int8],
    position: I64,
    start: I64,
    symbols: Symbols,
    repairs: Counter[str],
) -> Rows:
    """Return the columns of the events; events without a usable time are dropped and counted."""
    given = [e.dur for e in chosen]
    duration, _ = numbers.nanoseconds(given)
    gpu = (category >= Category.KERNEL) & (category <= Category.GPU_MEMSET)
    good = _usable(given, start, duration, gpu, repairs)
    if not good.all():
        keep = np.flatnonzero(good)
        chosen = [chosen[i] for i in keep]
        position, start, duration = position[keep], start[keep], duration[keep]
        category, gpu = category[keep], gpu[keep]
    args = [e.args or NO_ARGS for e in chosen]
    code = symbols.strings.__getitem__
    names = [e.name for e in chosen]
    try:
        name = np.fromiter(map(code, names), np.int32, len(names))
    except TypeError:  # a name that is a list or an object
        name = np.array([code(n if isinstance(n, str) else str(n)[:200]) for n in names], np.int32)
    tid = numbers.ids([e.tid for e in chosen], symbols.texts)
    host = (category == Category.CPU_OP) | (category == Category.USER_ANNOTATION)
    copies = np.flatnonzero((category == Category.GPU_MEMCPY) | (category == Category.GPU_MEMSET))
    copied = [args[i] for i in copies.tolist()]
    bandwidth = np.zeros(len(args))
    if copied:
        bandwidth[copies] = numbers.floats([a.bandwidth for a in copied])
    calls = np.flatnonzero(~host)
    columns: dict[str, NDArray[Any]] = {
        "position": position,
        "start": start,
        "duration": duration,
        "name": name,
        "category": category,
        "pid": numbers.ids([e.pid for e in chosen], symbols.texts),
        "tid": tid,
        "stream": _streams(args, category, gpu, tid),
        "correlation": _some(calls, [args[i].correlation for i in calls.tolist()], len(args)),
        "external_id": _external_ids(args),
        "shape": _shapes(args, host, category == Category.KERNEL, symbols),
        "bytes": _some(copies, [a.bytes for a in copied], len(args)),
        "bandwidth_gb_s": bandwidth,
    }
    said = [a.collective for a in args]
    comms = [] if said.count(None) == len(said) else [i for i, what in enumerate(said) if what is not None]
    for i in comms:  # raw JSON is a view that would keep the text of the whole chunk alive
        args[i].dims = args[i].grid = args[i].block = NO_RAW
    return Rows(columns, [(int(position[i]), args[i]) for i in comms])


def _usable(
    given: list[Any], start: I64, duration: I64, gpu: NDArray[np.bool_], repairs: Counter[str]
) -> NDArray[np.bool_]:
    if not len(start) or (duration.min() > 0 and start.min() != numbers.BAD):  # BAD is negative
        return np.ones(len(start), bool)
    bad_start = start == numbers.BAD
    bad = duration == numbers.BAD
    negative = (duration < 0) & ~bad
    lost = gpu & (start == 0) & (duration == 0)
    good: NDArray[np.bool_] = ~(bad_start | bad | negative | lost)
    if not good.all():
        missing = np.fromiter((d is None for d in given), bool, len(given))
        for kind, where in (
            (repair.NO_START, bad_start),
            (repair.NO_DURATION, bad & missing & ~bad_start),
            (repair.ODD_DURATION, bad & ~missing & ~bad_start),
            (repair.NEGATIVE_DURATION, negative & ~bad_start),
            (repair.LOST_RECORD, lost),
        ):
            if where.any():
                repairs[kind] += int(where.sum())
    return good


def _some(rows: I64, values: list[Any], length: int) -> I64:
    """Return a column with values in these rows only, -1 elsewhere."""
    if len(rows) == length:
        return numbers.integers(values)
    column = np.full(length, -1, np.int64)
    if len(rows):
        column[rows] = numbers.integers(values)
    return column


def _external_ids(args: list[Args]) -> I64:
    column = numbers.integers([a.external_id for a in args])
    rows = np.flatnonzero(column == -1)
    if len(rows):
        column[rows] = numbers.integers([args[i].external_id_2021 for i in rows.tolist()])
    return column


def _streams(args: list[Args], category: NDArray[np.int8], gpu: NDArray[np.bool_], tid: I64) -> NDArray[np.int32]:
    if not len(category) or category.max() < Category.KERNEL:  # the device's categories are the higher ones
        return np.full(len(args), -1, np.int32)
    rows = np.flatnonzero(gpu | (category == Category.GPU_USER_ANNOTATION) | (category == Category.CUDA_SYNC))
    stream = _some(rows, [-1 if (s := args[i].stream) is None else s for i in rows.tolist()], len(args))
    stream = np.where(gpu & (stream < 0), tid, stream)
    return np.where((stream < 0) | (stream > np.iinfo(np.int32).max), -1, stream).astype(np.int32)


def _shapes(
    args: list[Args], host: NDArray[np.bool_], kernels: NDArray[np.bool_], symbols: Symbols
) -> NDArray[np.int32]:
    shape = np.full(len(args), -1, np.int32)
    rows = np.flatnonzero(host)
    if len(rows):
        dims = map(bytes, [args[i].dims for i in rows.tolist()])
        shape[rows] = np.fromiter(map(symbols.shapes.__getitem__, dims), np.int32, len(rows))
    rows = np.flatnonzero(kernels)
    if len(rows):
        chosen = [args[i] for i in rows.tolist()]
        keys = zip(map(bytes, [a.grid for a in chosen]), map(bytes, [a.block for a in chosen]), strict=True)
        shape[rows] = np.fromiter(map(symbols.grids.__getitem__, keys), np.int32, len(rows))
    return shape
