"""Split blocks of text into the part before the events, chunks of whole events, and the part after them.

Kineto and every JSON library write events in a fixed layout: the text between two events is always the same. This
separator is determined from the first two events and then only searched for, which is as fast as memory. A raw newline
cannot occur inside a JSON string, so a separator with a newline cannot either; without a newline, the first key of the
events is part of the separator (inside a string its quotes would be escaped).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from rankscope.errors import TraceError
from rankscope.trace.kineto.events import NO_JSON

__all__ = ["CHUNK_BYTES", "MAX_HEAD_BYTES", "Part", "find_end", "split"]

CHUNK_BYTES = 192 << 10
"""Small enough that the objects of a chunk stay in the cache while they become columns: 2 MiB took 1.1 to 1.2 times as
long."""
MAX_HEAD_BYTES = 64 << 20
"""pg_config of ten thousand ranks takes some megabytes; a file with 64 MiB before the first event is not a trace."""
MAX_EVENT_BYTES = 64 << 20
"""Text without the separator is collected up to this size and then decoded as one document."""

_OPENING = re.compile(rb'"traceEvents"\s*:\s*\[(\s*)')
_LIST_OPENING = re.compile(rb"^(?:\xef\xbb\xbf)?\s*\[(\s*)")
_FIRST_KEY = re.compile(rb'\{(\s*"(?:[^"\\]|\\.){0,64}")')
_END = re.compile(rb"\}\s*\](?=\s*(?:,\s*\"(?:[^\"\\]|\\.)*\"\s*:|\}|$))")
_BETWEEN = re.compile(rb"\}(\s*,\s*)\{")
_one = msgspec.json.Decoder(msgspec.Raw)
_shape = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(slots=True)
class Part:
    """``kind``: ``head``, ``events`` (whole events joined by commas, without brackets), ``tail`` or ``cut`` (the text
    ended inside the events; the remainder). ``offset``: position of ``text`` in the plain file."""

    kind: str
    text: bytes
    offset: int
    glue: bytes = b""
    """The text between the previous part and this one, without white space."""
    separator: bytes = b""
    """The separator of events; it ends with the brace that opens the next event."""


def split(blocks: Iterator[bytes], name: str, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Part]:
    """Yield one head, any number of event chunks, and a tail or a cut.

    Raises:
        TraceError: there is no ``traceEvents`` list.
    """
    buffer, opening, is_list, ended = _read_head(blocks, name)
    base = opening.end()
    yield Part("head", b"" if is_list else buffer[: opening.start()], 0)
    buffer = buffer[base:]
    while not ended and len(buffer) < 4096:  # enough for the first key
        more = next(blocks, b"")
        ended = not more
        buffer += more
    if buffer.startswith(b"]"):
        yield Part("tail", _rest(buffer[1:], blocks, name), base + 1, b"]")
        return
    gap, separator = _rhythm(buffer, opening.group(1))
    wanted = chunk_bytes
    parts = [buffer]
    size = len(buffer)
    while not ended:
        more = next(blocks, b"")
        ended = not more
        parts.append(more)
        size += len(more)
        if size < wanted and not ended:
            continue
        buffer = b"".join(parts)
        cut = buffer.rfind(separator)
        if cut < 0:
            if size > MAX_EVENT_BYTES:
                raise TraceError(
                    f"{name}: no second event within {size} bytes from byte {base}; not a layout any profiler writes: "
                    "export the trace again"
                )
            wanted = size * 2
            parts = [buffer]
            continue
        yield Part("events", buffer[: cut + 1], base, b",", separator)
        after = cut + 1 + len(gap)  # the next chunk starts at its brace
        base += after
        buffer = buffer[after:]
        parts, size, wanted = [buffer], len(buffer), chunk_bytes
    buffer = b"".join(parts)
    # The text is complete: the remainder is the last events, and the end of the list.
    end = find_end(buffer)
    if end is None:
        cut = buffer.rfind(separator)
        if cut >= 0:
            yield Part("events", buffer[: cut + 1], base, b",", separator)
        yield Part("cut", buffer[cut + 1 :], base + cut + 1)
        return
    yield Part("events", buffer[: end[0]], base, b",", separator)
    yield Part("tail", buffer[end[1] :], base + end[1], b"]")


def _rhythm(text: bytes, opening: bytes) -> tuple[bytes, bytes]:
    """Return the text between the first event and the second, and the same with the braces around it."""
    gap = b"," + opening[max(opening.rfind(b"\n"), 0) :]  # in case only one event is visible
    for found in itertools.islice(_BETWEEN.finditer(text, 0, 1 << 18), 64):
        try:
            _one.decode(text[: found.start() + 1])
        except NO_JSON:
            continue  # inside the first event
        gap = found.group(1)
        break
    key = _FIRST_KEY.match(text)
    return gap, b"}" + gap + b"{" + (key.group(1) if key and b"\n" not in gap else b"")


def _rest(text: bytes, blocks: Iterator[bytes], name: str) -> bytes:
    parts, size = [text], len(text)
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size > MAX_HEAD_BYTES:
            raise TraceError(f"{name}: {size} bytes after an empty list of events: not a profiler trace")
    return b"".join(parts)


def _read_head(blocks: Iterator[bytes], name: str) -> tuple[bytes, re.Match[bytes], bool, bool]:
    buffer = b""
    searched = 0
    while True:
        more = next(blocks, b"")
        buffer += more
        if not more or len(buffer) >= 4096:
            listed = _LIST_OPENING.match(buffer)
            if listed:
                return buffer, listed, True, not more
            match = _OPENING.search(buffer, max(0, searched - 4096))
            if match and (not more or match.end() < len(buffer)):
                return buffer, match, False, not more
            searched = len(buffer)
        if not more or len(buffer) > MAX_HEAD_BYTES:
            what = "is empty" if not buffer.strip() else f'has no "traceEvents" list within {len(buffer)} bytes'
            raise TraceError(f"{name}: {what}: not a profiler trace; remove it, or record it again")


def find_end(text: bytes) -> tuple[int, int] | None:
    """Return where the last event ends and where the text after the closing bracket starts; None if it never closes.

    The list ends at the first bracket before which everything is valid JSON. With corrupt strings there is none; then
    it ends at the first bracket that is followed by a key of the document, or by its end.
    """
    first = None
    looked_at = 0
    for match in _END.finditer(text):
        place = match.start() + 1, match.end()
        first = first or place
        try:
            _shape.decode(b"[" + text[: place[0]] + b"]")
        except NO_JSON:
            looked_at += place[0]
            if looked_at > 2 * MAX_EVENT_BYTES:
                break
            continue
        return place
    return first
