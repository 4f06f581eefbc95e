"""Repairs of text that is not valid JSON, and the names by which the report lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.trace.columns import TRUNCATED

__all__ = [
    "DROPS",
    "JOINED",
    "LOST_RECORD",
    "MISPLACED",
    "NEGATIVE_DURATION",
    "NO_DURATION",
    "NO_START",
    "ODD_DURATION",
    "TRUNCATED",
    "UNPAIRED",
    "UNREADABLE",
    "attempts",
    "pieces",
]

NO_START = "dropped: no usable start time"
NO_DURATION = "dropped: no duration"
ODD_DURATION = "dropped: duration is no number"
NEGATIVE_DURATION = "dropped: negative duration"
MISPLACED = "dropped: device record far beyond the end of the recording"
LOST_RECORD = "dropped: device record lost by the driver (start 0, duration 0)"
UNREADABLE = "dropped: event is no JSON"
UNPAIRED = "dropped: begin without end, or end without begin"
DROPS = frozenset(
    {NO_START, NO_DURATION, ODD_DURATION, NEGATIVE_DURATION, MISPLACED, LOST_RECORD, UNREADABLE, UNPAIRED}
)
"""Kinds that drop an event; all others repair one."""
JOINED = "joined: begin and end event"
UTF8 = "mended: bytes that are no UTF-8"
ESCAPES = "mended: invalid escape in a string"
CONTROL = "mended: raw control character in a string"
QUOTES = "mended: unescaped quote in a string"
CONSTANTS = "mended: NaN or Infinity"
RANGE = "mended: number beyond the range of a double"

MAX_PIECE = 1 << 18
"""Longer events are not repaired."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.S)
_GOOD_PAIR = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\', re.S)
_SURROGATES = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""A pair, which is valid, or half of one."""
_CONTROL = re.compile(rb"[\x00-\x1f]")
_CONSTANT = re.compile(rb'("(?:[^"\\]|\\.)*")|([+-]?\b(?:nan|inf|infinity)\b(?:\([a-z]*\))?)', re.S | re.I)
_HUGE = re.compile(rb'("(?:[^"\\]|\\.)*")|(?<![\d.])(-?\d[\d.]*[eE][+]?\d{3,})', re.S)
"""A number is matched from its start only; from each of its digits would take quadratic time."""
_TEXT_FIELD = re.compile(
    rb'("(?:name|cat)"\s*:\s*")(.{0,8000}?)("(?=\s*(?:,\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp)"\s*:|\}\s*\Z)))',
    re.S,
)
_TEXT_KEY = re.compile(rb'"(?:name|cat)"\s*:')
_MOST_TEXT_FIELDS = 16
"""An event has a name, a class, and sometimes another name among its arguments. For each, the end is searched over
thousands of characters, which would take minutes with thousands of fields."""
_BARE_QUOTE = re.compile(rb'(?<!\\)"')


def pieces(text: bytes, separator: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a chunk into its events: ``(position, text)`` of each."""
    if not separator:
        yield 0, text
        return
    place = 0
    while True:
        cut = text.find(separator, place)
        if cut < 0:
            yield place, text[place:]
            return
        yield place, text[place : cut + 1]
        place = text.index(b"{", cut + 1)


def attempts(piece: bytes) -> Iterator[tuple[bytes, list[str]]]:
    """Yield the piece unchanged, then with more and more repairs, each with the kinds of repairs."""
    yield piece, []
    if len(piece) > MAX_PIECE:
        return
    kinds: list[str] = []
    try:
        piece.decode()
    except UnicodeDecodeError:
        piece = piece.decode("utf-8", "replace").encode()
        kinds.append(UTF8)
        yield piece, list(kinds)
    # A stray quote swaps the inside and outside of strings, so the other repairs would change the wrong places. Its
    # repair is tried last, on the unchanged text, and then followed by the others.
    for repairs in (_REPAIRS, ((QUOTES, _quotes), *_REPAIRS)):
        mended, kinds_repaired = piece, list(kinds)
        for kind, repair in repairs:
            better = repair(mended)
            if better != mended:
                mended = better
                kinds_repaired.append(kind)
                yield mended, list(kinds_repaired)


def _escapes(piece: bytes) -> bytes:
    def fixed(pair: re.Match[bytes]) -> bytes:
        return pair.group() if len(pair.group()) > 1 else b"\\\\"

    whole = _STRING.sub(lambda s: _GOOD_PAIR.sub(fixed, s.group()), piece)
    return _SURROGATES.sub(lambda m: m.group(1) or b"\\ufffd", whole)


def _controls(piece: bytes) -> bytes:
    return _STRING.sub(lambda s: _CONTROL.sub(lambda c: b"\\u%04x" % c.group()[0], s.group()), piece)


def _constants(piece: bytes) -> bytes:
    return _CONSTANT.sub(lambda m: m.group(1) or b"null", piece)


def _huge(piece: bytes) -> bytes:
    return _HUGE.sub(lambda m: m.group(1) or b"null", piece)


def _quotes(piece: bytes) -> bytes:
    if len(_TEXT_KEY.findall(piece)) > _MOST_TEXT_FIELDS:
        return piece
    return _TEXT_FIELD.sub(lambda m: m.group(1) + _BARE_QUOTE.sub(b'\\\\"', m.group(2)) + m.group(3), piece)


_REPAIRS = ((CONTROL, _controls), (ESCAPES, _escapes), (CONSTANTS, _constants), (RANGE, _huge))
