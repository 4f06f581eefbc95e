"""Redaction of a step log: entries are written anew, so that nothing else is copied."""

from __future__ import annotations

import gzip
from pathlib import Path

from rankscope.errors import ForeignFileError
from rankscope.privacy.naming.words import Words
from rankscope.records.running.step_log import (
    STEP_LOG_COLUMNS,
    STEP_LOG_ENTRY,
    STEP_LOG_ENTRY_V1,
    STEP_LOG_HEADER,
    STEP_LOG_MAGIC,
    STEP_LOG_VERSION,
    begins_with_header,
)
from rankscope.rundir.foreign import read_foreign_gzip, shown

__all__ = ["redact_step_log"]

_MOST_BYTES = 1 << 32
_FLAGS = 0x7F


def redact_step_log(source: Path, target: Path, words: Words) -> None:
    """Write the copy: step times, and end times as the policy requires.

    Raises:
        ForeignFileError: the log cannot be read, or has an unknown version.
        OSError: the copy cannot be written.
    """
    plain = read_foreign_gzip(source, _MOST_BYTES)
    clean = _second(plain, source, words) if begins_with_header(plain) else _first(plain)
    target.write_bytes(gzip.compress(clean, 1, mtime=0))


def _whole(plain: bytes, size: int) -> bytes:
    return plain[: len(plain) // size * size]


def _first(plain: bytes) -> bytes:
    pack = STEP_LOG_ENTRY_V1.pack
    entries = STEP_LOG_ENTRY_V1.iter_unpack(_whole(plain, STEP_LOG_ENTRY_V1.size))
    return b"".join(pack(*times, inside & 1) for *times, inside in entries)


def _second(plain: bytes, source: Path, words: Words) -> bytes:
    _, version, size, _ = STEP_LOG_HEADER.unpack(plain[: STEP_LOG_HEADER.size].ljust(STEP_LOG_HEADER.size, b"\0"))
    if (version, size) != (STEP_LOG_VERSION, STEP_LOG_ENTRY.size):
        raise ForeignFileError(f"{shown(source)}: a step log of version {version}, which is not known here")
    parts = [STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, version, size, 0)]
    for entry in STEP_LOG_ENTRY.iter_unpack(_whole(plain[STEP_LOG_HEADER.size :], size)):
        times = entry[: len(STEP_LOG_COLUMNS)]
        steps, flags, calls, _, ended = entry[len(STEP_LOG_COLUMNS) :]
        parts.append(STEP_LOG_ENTRY.pack(*times, steps, flags & _FLAGS, calls, 0, words.time_ns(ended)))
    return b"".join(parts)
