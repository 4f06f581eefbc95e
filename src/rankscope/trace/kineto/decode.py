"""Chunks of text -> events -> rows. Events that no analysis reads are dropped before they become rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import Category
from rankscope.trace.kineto import numbers, repair
from rankscope.trace.kineto.chunks import find_end
from rankscope.trace.kineto.events import (
    DROPPED_CATEGORIES,
    NO_JSON,
    Begin,
    Complete,
    End,
    Instant,
    Label,
    LabelArgs,
    as_events,
    category_code,
)
from rankscope.trace.kineto.memory import samples
from rankscope.trace.kineto.rows import Rows, Symbols, make_rows

__all__ = ["Decoder"]

_PROCESS_NAMES = ("process_name", "process_labels")


class _Codes(dict[Any, int]):
    """Category as written -> code; -1 for categories that no analysis reads."""

    def __missing__(self, key: Any) -> int:
        dropped = key.__class__ is not str or key in DROPPED_CATEGORIES
        code = self[key] = -1 if dropped else category_code(key)
        return code


SHORT_US = 100.0
"""Least duration of a recorded call of a built-in function. More than half of all calls of Python functions are of
built-in ones (``isinstance``, ``append``), which take a microsecond and identify no line. Those that wait (``sleep``,
``write``) take longer."""


def _drop_built_in(events: list[Any], category: NDArray[np.int8]) -> None:
    for row in np.flatnonzero(category == Category.PYTHON_FUNCTION).tolist():
        event = events[row]
        if event.name.__class__ is str and event.name.startswith("<built-in"):
            try:
                short = event.dur is not None and float(event.dur) < SHORT_US
            except (TypeError, ValueError):
                continue
            if short:
                category[row] = -1


@dataclass(slots=True)
class Decoder:
    """State shared by the chunks of one file: interned strings, counts of repairs and drops, open B events."""

    symbols: Symbols = field(default_factory=Symbols)
    repairs: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)
    """Positions of text that could not be repaired, in words."""
    labels: dict[int, str] = field(default_factory=dict)
    """Process id, as in the columns -> name of the process in the file."""
    position: int = 0
    exact: bool = False
    _code: _Codes = field(default_factory=_Codes)
    _open: dict[tuple[Any, Any], list[tuple[int, Any]]] = field(default_factory=dict)

    def chunk(self, text: bytes, offset: int, separator: bytes) -> tuple[Rows, bytes | None]:
        """Decode whole events joined by commas. Never raises because of the text.

        The second result is the text after the end of the list, if the list turned out to end within the chunk.
        """
        rest = None
        try:
            events = as_events(b"[%b]" % text, exact=self.exact)
        except NO_JSON:
            end = find_end(text)
            if end is not None:
                text, rest = text[: end[0]], text[end[1] :]
            events = self._salvaged(text, offset, separator)
        return self.rows(events, lambda: as_events(b"[" + text + b"]", exact=True)), rest

    def rows(self, events: list[Any], again: Callable[[], list[Any]] | None = None) -> Rows:
        """Return columns of decoded events. ``again`` decodes the same text keeping decimals as written."""
        first = self.position
        self.position += len(events)
        kinds = set(map(type, events))
        joined: list[tuple[int, Any]] = []
        chosen, position = events, np.arange(first, first + len(events))
        if kinds != {Complete}:
            if Begin in kinds or End in kinds:
                for i, event in enumerate(events):
                    if event.__class__ is Begin or event.__class__ is End:
                        self._half(first + i, event, joined)
            complete = [i for i, event in enumerate(events) if event.__class__ is Complete]
            chosen = [events[i] for i in complete] + [e for _, e in joined]
            position = np.array(complete + [i - first for i, _ in joined], np.int64) + first
            if Label in kinds:
                self._name_processes(events)
        category = self._categories(chosen)
        _drop_built_in(chosen, category)
        if len(category) and category.min() < 0:
            wanted = category >= 0
            self.dropped.update(str(chosen[i].cat)[:40] for i in np.flatnonzero(~wanted).tolist())
            kept = np.flatnonzero(wanted)
            chosen = [chosen[i] for i in kept.tolist()]
            category, position = category[kept], position[kept]
        start, raw = numbers.nanoseconds([e.ts for e in chosen])
        if again is not None and raw is not None and numbers.needs_exact_text(raw):
            chosen = self._exactly(chosen, position, first, len(events), {p for p, _ in joined}, again)
            start, _ = numbers.nanoseconds([e.ts for e in chosen])
        rows = make_rows(chosen, category, position, start, self.symbols, self.repairs)
        if Instant in kinds:
            rows.memory = samples([e for e in events if e.__class__ is Instant])
        return rows

    def _name_processes(self, events: list[Any]) -> None:
        named: list[Any] = [
            e for e in events if e.__class__ is Label and e.name in _PROCESS_NAMES and e.args is not None
        ]
        for pid, event in zip(numbers.ids([e.pid for e in named], self.symbols.texts).tolist(), named, strict=True):
            args: LabelArgs = event.args
            text = args.labels if args.name is None else args.name
            if isinstance(text, str):
                self.labels[pid] = f"{self.labels.get(pid, '')} {text[:200]}".strip()

    def _categories(self, chosen: list[Any]) -> NDArray[np.int8]:
        try:
            return np.fromiter(map(self._code.__getitem__, [e.cat for e in chosen]), np.int8, len(chosen))
        except TypeError:  # a category that is a list or an object
            for event in chosen:
                if not isinstance(event.cat, str):
                    event.cat = None
            return self._categories(chosen)

    def _exactly(
        self,
        chosen: list[Any],
        position: NDArray[np.int64],
        first: int,
        count: int,
        joined: set[int],
        again: Callable[[], list[Any]],
    ) -> list[Any]:
        try:
            exact = again()
        except NO_JSON:  # the chunk was repaired event by event, decimals kept
            return chosen
        if len(exact) != count:
            return chosen
        self.exact = True
        return [e if p in joined else exact[p - first] for p, e in zip(position.tolist(), chosen, strict=True)]

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
        self.repairs[repair.JOINED] += 1
        kept.append((begun, whole))

    def finish(self) -> None:
        """Count begin events that have no end."""
        left = sum(len(v) for v in self._open.values())
        if left:
            self.repairs[repair.UNPAIRED] += left

    def _salvaged(self, text: bytes, offset: int, separator: bytes) -> list[Any]:
        """Decode event by event, repairing each that is not valid JSON."""
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
