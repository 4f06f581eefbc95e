"""Chunks of events -> columns. What no analysis reads is dropped before it becomes a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.trace import numbers, repair
from rankscope.trace.columns import Category
from rankscope.trace.events import (
    CATEGORY_CODES,
    DROPPED_CATEGORIES,
    NO_ARGS,
    NO_JSON,
    NO_RAW,
    Args,
    Begin,
    Complete,
    End,
    as_events,
)
from rankscope.trace.split import find_end

__all__ = ["Decoder", "Rows"]

GPU = np.array([Category.KERNEL, Category.GPU_MEMCPY, Category.GPU_MEMSET], np.int8)


class _Interner(dict[str, int]):
    """Text -> code, in order of appearance."""

    def __missing__(self, key: Any) -> int:
        if key.__class__ is not str:
            return self["" if key is None else str(key)[:200]]
        code = self[key] = len(self)
        return code


class _Wanted(dict[Any, bool]):
    """Category -> whether an analysis reads it."""

    def __missing__(self, key: Any) -> bool:
        wanted = self[key] = key.__class__ is str and key not in DROPPED_CATEGORIES
        return wanted


@dataclass(slots=True)
class Rows:
    """Events of one chunk, column by column; times in ns on the file's own zero."""

    columns: dict[str, NDArray[Any]]
    comms: list[tuple[int, Args]]
    """Position and args of every event that says which collective it is."""


@dataclass(slots=True)
class Decoder:
    """What is shared by the chunks of one file: interned strings, counts of repairs and drops, open B events."""

    strings: Any = field(default_factory=_Interner)
    texts: dict[str, int] = field(default_factory=dict)
    repairs: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)
    """Where text was beyond repair, in words."""
    position: int = 0
    exact: bool = False
    wanted: Any = field(default_factory=_Wanted)
    _open: dict[tuple[Any, Any], list[tuple[int, Any]]] = field(default_factory=dict)

    def chunk(self, text: bytes, offset: int, separator: bytes) -> tuple[Rows, bytes | None]:
        """Decode whole events joined by commas. Never raises on what the text holds.

        The second result is the text after the end of the list, where the list turned out to end within the chunk.
        """
        rest = None
        try:
            events = as_events(b"[" + text + b"]", exact=self.exact)
        except NO_JSON:
            end = find_end(text)
            if end is not None:
                text, rest = text[: end[0]], text[end[1] :]
            events = self._salvaged(text, offset, separator)
        return self.rows(events, lambda: as_events(b"[" + text + b"]", exact=True)), rest

    def rows(self, events: list[Any], again: Callable[[], list[Any]] | None = None) -> Rows:
        """Columns of decoded events. ``again`` decodes the same text keeping decimals as written."""
        kept: list[tuple[int, Any]] = []
        first = self.position
        self.position += len(events)
        wanted = self.wanted
        complete = [i for i, e in enumerate(events) if e.__class__ is Complete]
        try:
            places = [i for i in complete if wanted[events[i].cat]]
        except TypeError:  # a category that is no text
            for i in complete:
                if not isinstance(events[i].cat, str):
                    events[i].cat = None
            places = [i for i in complete if wanted[events[i].cat]]
        chosen = [events[i] for i in places]
        for i in complete if len(places) < len(complete) else ():
            if not wanted[events[i].cat]:
                self.dropped[str(events[i].cat)[:40]] += 1
        for i, event in enumerate(events):
            if event.__class__ is Begin or event.__class__ is End:
                self._half(first + i, event, kept)
        if kept:
            places += [i - first for i, _ in kept]
            chosen += [e for _, e in kept]
        start, raw = numbers.nanoseconds([e.ts for e in chosen])
        if again is not None and raw is not None and numbers.needs_exact_text(raw):
            try:
                exact = again()
            except NO_JSON:
                exact = events
            if len(exact) == len(events):
                self.exact = True
                joined = {id(e) for _, e in kept}
                chosen = [e if id(e) in joined else exact[i] for i, e in zip(places, chosen, strict=True)]
                start, _ = numbers.nanoseconds([e.ts for e in chosen])
        return self._columns(chosen, np.array(places, np.int64) + first, start)

    def _columns(self, chosen: list[Any], position: NDArray[np.int64], start: NDArray[np.int64]) -> Rows:
        given = [e.dur for e in chosen]
        duration, _ = numbers.nanoseconds(given)
        category = np.array([CATEGORY_CODES.get(e.cat, 0) for e in chosen], np.int8)
        gpu = np.isin(category, GPU)
        bad_start = start == numbers.BAD
        bad_duration = duration == numbers.BAD
        negative = (duration < 0) & ~bad_duration
        lost = gpu & (start == 0) & (duration == 0)
        good = ~(bad_start | bad_duration | negative | lost)
        if not good.all():
            missing = np.fromiter((d is None for d in given), bool, len(given))
            self._count(repair.NO_START, bad_start)
            self._count(repair.NO_DURATION, bad_duration & missing & ~bad_start)
            self._count(repair.ODD_DURATION, bad_duration & ~missing & ~bad_start)
            self._count(repair.NEGATIVE_DURATION, negative & ~bad_start)
            self._count(repair.LOST_RECORD, lost)
            keep = np.flatnonzero(good)
            chosen = [chosen[i] for i in keep]
            position, start, duration = position[keep], start[keep], duration[keep]
            category, gpu = category[keep], gpu[keep]
        empty = NO_ARGS
        args = [e.args or empty for e in chosen]
        names = [e.name for e in chosen]
        code = self.strings.__getitem__
        try:
            name = np.array(list(map(code, names)), np.int32)
        except TypeError:  # a name that is a list or an object
            name = np.array([code(n if isinstance(n, str) else str(n)[:200]) for n in names], np.int32)
        tid = numbers.ids([e.tid for e in chosen], self.texts)
        stream = numbers.integers([-1 if a.stream is None else a.stream for a in args])
        stream = np.where(gpu & (stream < 0), tid, stream)
        host = ~gpu & (category != Category.GPU_USER_ANNOTATION) & (category != Category.CUDA_SYNC)
        stream = np.where(host | (np.abs(stream) > np.iinfo(np.int32).max), -1, stream).astype(np.int32)
        return Rows(
            {
                "position": position,
                "start": start,
                "duration": duration,
                "name": name,
                "category": category,
                "pid": numbers.ids([e.pid for e in chosen], self.texts),
                "tid": tid,
                "stream": stream,
                "correlation": numbers.integers([a.correlation for a in args]),
                "external_id": numbers.integers(
                    [a.external_id_2021 if a.external_id is None else a.external_id for a in args]
                ),
                "shape": np.array([self._shape(a) for a in args], np.int32),
                "bytes": numbers.integers([a.bytes for a in args]),
                "bandwidth_gb_s": _floats([a.bandwidth for a in args]),
            },
            [(int(p), a) for p, a in zip(position.tolist(), args, strict=True) if a.collective is not None],
        )

    def _shape(self, args: Args) -> int:
        if args.dims is not NO_RAW:
            return self.strings[bytes(args.dims).decode("utf-8", "replace")]  # type: ignore[no-any-return]
        if args.grid is not NO_RAW:
            text = f"grid {bytes(args.grid).decode()} block {bytes(args.block).decode()}"
            return self.strings[text]  # type: ignore[no-any-return]
        return -1

    def _count(self, kind: str, where: NDArray[np.bool_]) -> None:
        number = int(where.sum())
        if number:
            self.repairs[kind] += number

    def _half(self, position: int, event: Any, kept: list[tuple[int, Any]]) -> None:
        """Join a begin and an end event of one thread into a complete one."""
        try:
            open_events = self._open.setdefault((event.pid, event.tid), [])
        except TypeError:
            open_events = []
        if event.__class__ is Begin:
            open_events.append((position, event))
            return
        if not open_events:
            self.repairs[repair.UNPAIRED] += 1
            return
        begun, begin = open_events.pop()
        times, _ = numbers.nanoseconds([begin.ts, event.ts])
        whole = Complete(begin.name, begin.cat, begin.pid, begin.tid, begin.ts, None, begin.args)
        if (times != numbers.BAD).all():
            whole.dur = Decimal(int(times[1] - times[0])) / 1000
        if not self.wanted[whole.cat]:
            self.dropped[str(whole.cat)[:40]] += 1
            return
        self.repairs[repair.JOINED] += 1
        kept.append((begun, whole))

    def finish(self) -> None:
        """Count begins that never ended."""
        left = sum(len(v) for v in self._open.values())
        if left:
            self.repairs[repair.UNPAIRED] += left

    def _salvaged(self, text: bytes, offset: int, separator: bytes) -> list[Any]:
        """Decode event by event, mending each that is no JSON."""
        events: list[Any] = []
        for place, piece in repair.pieces(text, separator):
            for candidate, kinds in repair.attempts(piece):
                try:
                    events += as_events(b"[" + candidate + b"]", exact=True)
                except NO_JSON:
                    continue
                self.repairs.update(kinds)
                break
            else:
                events.append(None)
                self.repairs[repair.UNREADABLE] += 1
                if len(self.places) < 5:
                    self.places.append(f"the event at byte {offset + place} is no JSON and was left out")
        return events


def _floats(values: list[Any]) -> NDArray[np.float64]:
    try:
        result = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        result = np.array([v if isinstance(v, (int, float)) and abs(v) < 1e30 else 0.0 for v in values], np.float64)
    return np.where(np.isfinite(result), result, 0.0)
