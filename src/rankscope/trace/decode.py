"""Chunks of events -> columns, with msgspec's typed decoding. What is not needed is dropped before it is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.trace import numbers, repair
from rankscope.trace.columns import Category

__all__ = ["CATEGORY_CODES", "DROPPED_CATEGORIES", "Args", "Decoder", "Rows", "as_events"]

CATEGORY_CODES: dict[Any, int] = {
    "cpu_op": Category.CPU_OP,
    "user_annotation": Category.USER_ANNOTATION,
    "cuda_runtime": Category.CUDA_RUNTIME,
    "cuda_driver": Category.CUDA_DRIVER,
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.GPU_MEMCPY,
    "gpu_memset": Category.GPU_MEMSET,
    "gpu_user_annotation": Category.GPU_USER_ANNOTATION,
    "cuda_sync": Category.CUDA_SYNC,
    "overhead": Category.OVERHEAD,
    "python_function": Category.PYTHON_FUNCTION,
    # 2021
    "Operator": Category.CPU_OP,
    "Runtime": Category.CUDA_RUNTIME,
    "Kernel": Category.KERNEL,
    "Memcpy": Category.GPU_MEMCPY,
    "Memset": Category.GPU_MEMSET,
    # other devices of Kineto
    "hip_runtime": Category.CUDA_RUNTIME,
    "hip_driver": Category.CUDA_DRIVER,
    "xpu_runtime": Category.CUDA_RUNTIME,
    "xpu_driver": Category.CUDA_DRIVER,
    "mtia_runtime": Category.CUDA_RUNTIME,
    "privateuse1_runtime": Category.CUDA_RUNTIME,
    "privateuse1_driver": Category.CUDA_DRIVER,
}
DROPPED_CATEGORIES = frozenset({"python_function", "Trace", "cpu_instant_event", "ac2g", "fwdbwd", "async"})
"""Classes no analysis reads. ``Trace`` is Kineto's own span of the whole recording."""
GPU = np.array([Category.KERNEL, Category.GPU_MEMCPY, Category.GPU_MEMSET], np.int8)
NO_RAW = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False):
    """What analyses read of an event's ``args``. Untyped on purpose: a wrong type is mended column by column."""

    stream: Any = None
    correlation: Any = -1
    external_id: Any = msgspec.field(default=None, name="External id")
    external_id_2021: Any = msgspec.field(default=-1, name="external id")
    dims: msgspec.Raw = msgspec.field(default=NO_RAW, name="Input Dims")
    grid: msgspec.Raw = NO_RAW
    block: msgspec.Raw = NO_RAW
    bytes: Any = -1
    bandwidth: Any = msgspec.field(default=0.0, name="memory bandwidth (GB/s)")
    collective: Any = msgspec.field(default=None, name="Collective name")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    in_elements: Any = msgspec.field(default=-1, name="In msg nelems")
    out_elements: Any = msgspec.field(default=-1, name="Out msg nelems")
    dtype: Any = None
    seq: Any = msgspec.field(default=-1, name="Seq")
    comms_id: Any = msgspec.field(default=None, name="Comms Id")
    source_rank: Any = msgspec.field(default=-1, name="Src Rank")
    target_rank: Any = msgspec.field(default=-1, name="Dst Rank")


class Complete(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    """A complete event, decoded fast: ``ph`` is the tag of a union."""

    name: Any = ""
    cat: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class _Begin(Complete, tag_field="ph", tag="B", gc=False):
    pass


class _End(Complete, tag_field="ph", tag="E", gc=False):
    pass


def _marker(name: str, tag: str) -> Any:
    return msgspec.defstruct(name, [], tag_field="ph", tag=tag, gc=False)


_Flow = _marker("_Flow", "s") | _marker("_FlowEnd", "f") | _marker("_FlowStep", "t")
_Mark = _marker("_Meta", "M") | _marker("_Instant", "i") | _marker("_OldInstant", "I") | _marker("_Counter", "C")
_EVENTS = list[Complete | _Begin | _End | _Flow | _Mark]  # type: ignore[valid-type]


class AnyEvent(msgspec.Struct, gc=False):
    """Any event at all, for chunks in which the union does not fit."""

    ph: Any = None
    name: Any = ""
    cat: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Any = None


_fast = msgspec.json.Decoder(_EVENTS)
_exact = msgspec.json.Decoder(_EVENTS, float_hook=Decimal)
_lenient = msgspec.json.Decoder(list[AnyEvent | None], float_hook=Decimal)
_EMPTY = Args()


def as_events(text: bytes, *, exact: bool = False) -> list[Any]:
    """Decode a JSON list of events into structs; ``exact`` keeps decimals as written.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the text is no such list.
    """
    try:
        return (_exact if exact else _fast).decode(text)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        return [_from_any(e) for e in _lenient.decode(text)]


def _from_any(event: AnyEvent | None) -> Any:
    kinds: dict[Any, type[Complete]] = {"X": Complete, "B": _Begin, "E": _End}
    kind = None if event is None or not isinstance(event.ph, str) else kinds.get(event.ph)
    if event is None or kind is None:
        return None
    args = None
    if isinstance(event.args, dict):
        plain = {k: v for k, v in event.args.items() if k not in {"Input Dims", "grid", "block"}}
        args = msgspec.convert(plain, Args)
        args.dims, args.grid, args.block = (
            msgspec.Raw(msgspec.json.encode(event.args[k])) if k in event.args else NO_RAW
            for k in ("Input Dims", "grid", "block")
        )
    return kind(event.name, event.cat, event.pid, event.tid, event.ts, event.dur, args)


class _Interner(dict[Any, int]):
    """Value -> code, in order of appearance."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code


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
    other_categories: dict[Any, int] = field(default_factory=dict)
    _open: dict[tuple[Any, Any], list[tuple[int, Any]]] = field(default_factory=dict)
    _category: Callable[[Any], int] = CATEGORY_CODES.get  # type: ignore[assignment]

    def chunk(self, text: bytes, offset: int, separator: bytes) -> Rows:
        """Decode whole events joined by commas. Never raises on what the text holds."""
        try:
            events = as_events(b"[" + text + b"]", exact=self.exact)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            events = self._salvaged(text, offset, separator)
        return self.rows(events, lambda: as_events(b"[" + text + b"]", exact=True))

    def rows(self, events: list[Any], again: Callable[[], list[Any]] | None = None) -> Rows:
        """Columns of decoded events. ``again`` decodes the same text keeping decimals as written."""
        kept: list[tuple[int, Any]] = []
        first = self.position
        self.position += len(events)
        drop = DROPPED_CATEGORIES
        places = [i for i, e in enumerate(events) if e.__class__ is Complete and e.cat.__class__ is str and e.cat not in drop]
        rest = [i for i, e in enumerate(events) if e.__class__ in _OTHER or (e.__class__ is Complete and (e.cat.__class__ is not str or e.cat in drop))]
        chosen = [events[i] for i in places]
        for i in rest:
            self._other(first + i, events[i], kept)
        if kept:
            places += [i - first for i, _ in kept]
            chosen += [e for _, e in kept]
        start, raw = numbers.nanoseconds([e.ts for e in chosen])
        if again is not None and raw is not None and numbers.needs_exact_text(raw):
            try:
                exact = again()
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
            position, start, duration, category, gpu = (a[keep] for a in (position, start, duration, category, gpu))
        empty = _EMPTY
        args = [e.args or empty for e in chosen]
        names = [e.name for e in chosen]
        code = self.strings.__getitem__
        try:
            name = np.array(list(map(code, names)), np.int32)
        except TypeError:  # a name that is no text
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

    def _other(self, position: int, event: Any, kept: list[tuple[int, Any]]) -> None:
        """Begin and end events, dropped classes, and events without a usable category."""
        if event.__class__ is Complete:
            if event.cat.__class__ is str:
                self.dropped[event.cat] += 1
            elif event.cat is None:
                self.dropped["without a category"] += 1
            else:
                event.cat = "other"
                kept.append((position, event))
            return
        try:
            open_events = self._open.setdefault((event.pid, event.tid), [])
        except TypeError:
            open_events = []
        if event.__class__ is _Begin:
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
        if whole.cat.__class__ is not str or whole.cat in DROPPED_CATEGORIES:
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
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
                self.repairs.update(kinds)
                break
            else:
                events.append(None)
                self.repairs[repair.UNREADABLE] += 1
                if len(self.places) < 5:
                    self.places.append(f"the event at byte {offset + place} is no JSON and was left out")
        return events


_OTHER = (_Begin, _End)


def _floats(values: list[Any]) -> NDArray[np.float64]:
    try:
        result = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        result = np.array([v if isinstance(v, (int, float)) and abs(v) < 1e30 else 0.0 for v in values], np.float64)
    return np.where(np.isfinite(result), result, 0.0)
