"""Redaction of a trace of any size, chunk by chunk: a few hundred kilobytes of text are in memory at a time."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import msgspec

from rankscope.privacy.files.events import (
    NO_RAW,
    NUMBERS,
    Arguments,
    Begin,
    Complete,
    End,
    Flow,
    Moment,
    Track,
    as_events,
    number_of,
)
from rankscope.privacy.files.heads import head_of
from rankscope.privacy.naming.names import Names
from rankscope.privacy.naming.policy import Policy, as_plain
from rankscope.privacy.naming.tokens import Tokens
from rankscope.privacy.naming.words import Words
from rankscope.rundir.files import temporary_beside
from rankscope.trace.kineto import meta, repair
from rankscope.trace.kineto.chunks import Part, find_end, split
from rankscope.trace.kineto.events import CATEGORY_CODES, DROPPED_CATEGORIES, MEMORY, NO_JSON, category_code
from rankscope.trace.kineto.merged import by_range, label_of
from rankscope.trace.kineto.numbers import exact_float_limit
from rankscope.trace.read import Reader

__all__ = ["redact_trace"]

_PACKED_LEVEL = 1
_FLOWS = frozenset({"ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu", "async"})
_SUFFIXES = ("_runtime", "_driver", "_sync", "_memcpy", "_memset", "_kernel")
_PLUGINS = frozenset({"xpu", "mtia", "privateuse1", "hpu", "musa", "npu", "mps", "glow", "hip", "cuda", "gpu"})
_TRACK_KEYS = frozenset({"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"})
_ABSOLUTE_US = 10**15
"""Larger times are microseconds since 1970, smaller ones have the file's own origin."""
_ODD = "?"
"""Takes the place of a duration that is not a number."""
_encoder = msgspec.json.Encoder(decimal_format="number")


def redact_trace(source: Path, target: Path, tokens: Tokens, policy: Policy) -> int:
    """Write the copy of a trace, compressed, however the original is compressed.

    Args:
        source: Kineto or Chrome trace JSON, plain or gzip, corrupt or not.
        target: must not exist.
        tokens: of the owner's key; gets the tokens that were made.
        policy: what is kept.

    Returns:
        Bytes of the original's text.

    Raises:
        TraceError: it is not a trace.
        OSError: the copy cannot be written.
    """
    size, merged = _write(source, target, tokens, policy)
    if merged and policy.process_ids == "shift":  # the range of an id shows its rank
        size, _ = _write(source, target, tokens, replace(policy, process_ids="keep"))
    return size


def _write(source: Path, target: Path, tokens: Tokens, policy: Policy) -> tuple[int, bool]:
    reader = Reader(source)
    scrubber = _Scrubber(tokens, policy)
    head, tail, separator = b"", b"", b""
    with temporary_beside(target) as temporary, _collector_off():
        with temporary.open("wb") as raw, _packed(raw) as packed:
            packed.write(b'{"traceEvents":[')
            for part in split(iter(reader), str(source)):
                if part.kind == "events" and not scrubber.ended:
                    events, rest = scrubber.chunk(part)
                    if text := scrubber.written(events):
                        packed.write(separator + text)
                        separator = b","
                    tail += rest
                elif part.kind == "head":
                    head = part.text
                elif part.kind == "cut":
                    scrubber.repairs[repair.TRUNCATED] += 1
                    tail = b"}"
                else:
                    tail += (part.glue if scrubber.ended else b"") + part.text
            if reader.damage and not scrubber.repairs[repair.TRUNCATED]:
                scrubber.repairs[repair.TRUNCATED] += 1
            metadata, kinds = meta.parse_head(head, tail)
            scrubber.repairs.update(kinds)
            about = head_of(metadata, scrubber.words, dict(scrubber.repairs), as_plain(policy))
            packed.write(b"]," + _encoder.encode(about)[1:])
        temporary.replace(target)
    return reader.plain_bytes, scrubber.merged


@dataclass(slots=True)
class _Scrubber:
    """Replaces identifying content in the events of one file."""

    tokens: Tokens
    policy: Policy
    words: Words = field(init=False)
    names: Names = field(init=False)
    repairs: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    exact: bool = False
    _classes: dict[Any, Any] = field(default_factory=dict)
    _ids: dict[Any, Any] = field(default_factory=dict)
    _shapes: dict[bytes, msgspec.Raw] = field(default_factory=dict)
    _texts: dict[tuple[str, Any], Any] = field(default_factory=dict)
    _drivers: set[int] = field(default_factory=set)
    """Ids of processes that make calls to a device, or have steps."""

    def __post_init__(self) -> None:
        self.words = Words(self.tokens, self.policy)
        self.names = Names(self.tokens, frozenset(self.policy.keep_names))

    @property
    def merged(self) -> bool:
        """Whether the file holds several ranks, which ranges of ids distinguish."""
        ids = sorted(self._drivers)
        return len(ids) > 1 and by_range(ids, [], ids) is not None

    def chunk(self, part: Part) -> tuple[list[Any], bytes]:
        """Decode whole events; also return the text after the list, if the list turned out to end within them."""
        text, rest = part.text, b""
        try:
            events = as_events(b"[%b]" % text, exact=self.exact)
        except NO_JSON:
            end = find_end(text)
            if end is not None:
                self.ended = True
                text, rest = text[: end[0]], text[end[1] :]
            return list(self._salvaged(text, part.separator)), rest
        if not self.exact and any(_inexact(event) for event in events):
            self.exact = True
            events = as_events(b"[%b]" % text, exact=True)
        return events, rest

    def _salvaged(self, text: bytes, separator: bytes) -> Iterator[Any]:
        for _, piece in repair.pieces(text, separator):
            for candidate, kinds in repair.attempts(piece):
                try:
                    events = as_events(b"[" + candidate + b"]", exact=True)
                except NO_JSON:
                    continue
                self.repairs.update(kinds)
                yield from events
                break
            else:
                self.repairs[repair.UNREADABLE] += 1

    def written(self, events: list[Any]) -> bytes:
        """Return the events as written to the copy, joined by commas."""
        return bytes(_encoder.encode([event for event in events if self._scrub(event)])[1:-1])

    def _scrub(self, event: Any) -> bool:
        """Redact an event in place; return False if it is left out."""
        if event.__class__ is End:  # it ends the last begin event of its thread, independent of its own content
            event.cat, event.name, event.args = None, "", None
        elif isinstance(event, Complete):
            known = self._classes.get(event.cat) if event.cat.__class__ is str else None
            if known is None:
                known = self._class(event.cat)
            if known is not False:
                self._named(event, *known)
            elif event.__class__ is Begin:  # needed for its end
                event.cat, event.name, event.args = event.cat if isinstance(event.cat, str) else None, "", None
            else:
                return False
            if event.dur.__class__ not in NUMBERS:
                event.dur = None if event.dur is None else _duration(event.dur)
            if event.args is not None:
                self._arguments(event.args)
        elif isinstance(event, Flow):
            if event.cat not in _FLOWS:
                return False
            event.name, event.bp = event.cat, "e" if event.bp == "e" else None
        elif isinstance(event, Moment):
            if event.name != MEMORY or self.policy.memory == "drop":
                return False
            event.s = "t"
        elif isinstance(event, Track):
            return self._track(event)
        else:
            return False
        event.pid, event.tid = self._id(event.pid), self._id(event.tid)
        event.ts = self._time(event.ts)
        return True

    def _named(self, event: Complete, category: str, names: dict[str, str], code: int) -> None:
        name = event.name
        clean = names.get(name) if name.__class__ is str else None
        if clean is None:
            clean = self.names.judged(category, name)
            if name.__class__ is str:
                names[name] = clean
        if code in _CALLS or (code in _STEPPING and clean.startswith("ProfilerStep#")):
            self._drive(event.pid)
        event.cat, event.name = category, clean

    def _class(self, category: Any) -> Any:
        """Return the class as it is written, the known names of it, and its code; False if it is left out."""
        if not isinstance(category, str):
            return False
        if category in DROPPED_CATEGORIES:
            return self._classes.setdefault(category, False)
        plain, suffix = category, next((s for s in _SUFFIXES if category.endswith(s)), "")
        stem = category[: len(category) - len(suffix)] if suffix else category
        if category not in CATEGORY_CODES and not (suffix and stem in _PLUGINS):
            plain = self.tokens.token("own", category) + suffix
        known: Any = (plain, {}, category_code(category))
        self._classes[category] = known
        return known

    def _drive(self, pid: Any) -> None:
        if pid.__class__ is int:
            self._drivers.add(pid)

    def _track(self, event: Track) -> bool:
        if event.name not in _TRACK_KEYS:
            return False
        event.pid, event.tid, event.ts = self._id(event.pid), self._id(event.tid), self._time(event.ts)
        if event.args is not None:
            for key in ("name", "labels"):
                value = getattr(event.args, key)
                setattr(event.args, key, self._label(value) if isinstance(value, str) else None)
            order = event.args.sort_index
            event.args.sort_index = self.words.process(order) if order.__class__ is int else None
        return True

    def _label(self, text: str) -> str:
        """Return the name of a process; of the user's own words only those that state its rank are kept."""
        clean = self.words.track(text) or ""
        ranks = label_of(text)
        return clean if not ranks or label_of(clean) == ranks else f"{ranks} {clean}".strip()

    def _id(self, value: Any) -> Any:
        if value.__class__ is int:
            return self.words.process(value)
        if value is None:
            return None
        key = value if isinstance(value, str) else str(value)[:200]
        known = self._ids.get(key)
        if known is None:
            digits = key.strip()
            if digits.isascii() and digits.isdigit() and len(digits) < 19:
                known = self.words.process(int(digits))
            else:
                known = self._label(key)
            self._ids[key] = known
        return known

    def _time(self, value: Any) -> Any:
        if value.__class__ not in NUMBERS:
            value = None if value is None else number_of(value)
            if value is None:
                return None
        if value >= _ABSOLUTE_US and self.words.earlier_ns:
            return value - self.words.earlier_ns // 1000
        return value

    def _arguments(self, args: Arguments) -> None:
        if args.dims is not NO_RAW:
            args.dims = self._shape(args.dims, self.policy.shapes)
        if args.grid is not NO_RAW:
            args.grid = self._shape(args.grid, self.policy.grids)
            args.block = self._shape(args.block, self.policy.grids)
        elif args.block is not NO_RAW:
            args.block = NO_RAW
        if self.policy.kernel_details == "drop":
            args.registers = args.shared = None
        if args.stream.__class__ is int and args.stream >= 1024:
            args.stream = self.words.process(args.stream)
        if args.forward_thread.__class__ is int and args.forward_thread >= 1024:
            args.forward_thread = self.words.process(args.forward_thread)
        if self.policy.message_sizes == "drop":
            args.bytes = args.bandwidth = args.in_elements = args.out_elements = None
        if args.collective is not None:
            args.collective = self._word(self.words.collective, args.collective)
        if args.dtype is not None:
            args.dtype = self._word(self.words.dtype, args.dtype)
        if args.group_name is not None:
            args.group_name = self._word(self.words.group, args.group_name)
        if args.group_description is not None:
            args.group_description = self._word(self.words.group, args.group_description)
        if args.group_ranks is not None:
            args.group_ranks = _ranks(args.group_ranks)
        if args.comms_id is not None:
            text = args.comms_id if isinstance(args.comms_id, str) else str(args.comms_id)[:200]
            args.comms_id = self.tokens.token("comm", text)

    def _word(self, judge: Callable[[Any], Any], value: Any) -> Any:
        if value.__class__ is not str and value.__class__ is not int:
            return None
        key = judge.__name__, value
        known = self._texts.get(key)
        if known is None:
            known = self._texts[key] = judge(value)
        return known

    def _shape(self, raw: msgspec.Raw, choice: str) -> msgspec.Raw:
        if choice == "drop":
            return NO_RAW
        text = bytes(raw)
        known = self._shapes.get(text)
        if known is None:
            known = self._shapes[text] = self._new_shape(text, choice)
        return known

    def _new_shape(self, text: bytes, choice: str) -> msgspec.Raw:
        if not text:
            return NO_RAW
        try:
            value = msgspec.json.decode(text)
        except NO_JSON:
            return NO_RAW
        return msgspec.Raw(msgspec.json.encode(self._dims(value, choice)))

    def _dims(self, value: Any, choice: str, depth: int = 0) -> Any:
        if isinstance(value, list) and value and all(v.__class__ is int for v in value):
            return value if choice == "keep" else self.tokens.shape(value)
        if isinstance(value, list) and depth < _DEEPEST:
            return [self._dims(v, choice, depth + 1) for v in value]
        return None if value is None else self.tokens.token("own", str(value)[:1000])


_CALLS = frozenset({category_code("cuda_runtime"), category_code("cuda_driver")})
_STEPPING = frozenset({category_code("user_annotation"), category_code("cpu_op")})
_DEEPEST = 4


def _inexact(event: Any) -> bool:
    """Return whether a time was written with more digits than a double holds."""
    time = getattr(event, "ts", None)
    return time.__class__ is float and time >= exact_float_limit


def _duration(value: Any) -> Any:
    number = number_of(value)
    return _ODD if number is None else number


def _ranks(value: Any) -> Any:
    """Return the ranks of a group, as text or as a list; a truncation stays visible."""
    if isinstance(value, str):
        return value if set(value) <= set("0123456789[], .") and len(value) < 1 << 20 else None
    if isinstance(value, list):
        return [v for v in value if v.__class__ is int]
    return None


def _packed(raw: IO[bytes]) -> Any:
    try:
        from isal import igzip
    except ImportError:  # platforms without a wheel
        import gzip

        return gzip.GzipFile(filename="", mode="wb", compresslevel=_PACKED_LEVEL, fileobj=raw, mtime=0)
    file: Any = igzip.IGzipFile
    return file(filename="", mode="wb", compresslevel=_PACKED_LEVEL, fileobj=raw, mtime=0)


class _collector_off:  # noqa: N801  reads as what it does
    """Switches the garbage collector off: with millions of small objects without cycles it would only traverse them
    repeatedly."""

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_on:
            gc.enable()
