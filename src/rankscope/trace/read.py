"""Read a file as blocks of plain text: gzip or not, by its content instead of its name; bounded in memory and in
total."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankscope.errors import ForeignFileError, TraceError
from rankscope.rundir.foreign import open_foreign, shown
from rankscope.trace.free_memory import require_memory

_inflate: Any = zlib
with contextlib.suppress(ImportError):  # platforms without a wheel: the same calls, several times slower
    from isal import isal_zlib as _inflate

__all__ = ["BLOCK_BYTES", "Reader"]

BLOCK_BYTES = 128 << 10
_CORRUPT: tuple[type[Exception], ...] = (zlib.error, _inflate.error)
GZIP_MAGIC = b"\x1f\x8b"
MAX_RATIO = 100
"""Kineto traces are compressed 10 to 40 times. A file that expands more than this is malicious or corrupt."""
RATIO_APPLIES_FROM = 1 << 26
"""Plain bytes below which the ratio is not checked: a short trace may be repetitive."""
MAX_PLAIN_BYTES = 1 << 36
"""64 GiB: far more than any window that is worth recording."""

_LOOK_EVERY_BYTES = 1 << 24
"""Interval, in bytes, between checks of the remaining memory, since the text becomes columns of half to five times its
size."""


class Reader:
    """Iterate over the plain text of ``path`` in blocks of at most ``BLOCK_BYTES``.

    After the iteration ``damage`` states why the text ends early (truncated or corrupt gzip), or is None.

    Raises:
        TraceError: the file cannot be read, or it expands beyond the limits.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        self.packed_bytes = 0
        self.plain_bytes = 0
        self._next_look = _LOOK_EVERY_BYTES

    def __iter__(self) -> Iterator[bytes]:
        try:
            with open_foreign(self.path, MAX_PLAIN_BYTES) as file:
                first = file.read(BLOCK_BYTES)
                if first.startswith(GZIP_MAGIC):
                    yield from self._unpacked(first, file)
                    return
                while first:
                    self.plain_bytes += len(first)
                    self._need_room()
                    yield first
                    first = file.read(BLOCK_BYTES)
        except ForeignFileError as error:
            raise TraceError(str(error)) from error
        except OSError as error:
            why = error.strerror or error
            raise TraceError(f"{shown(self.path)}: cannot be read ({why}); check path and rights") from error

    def _unpacked(self, packed: bytes, file: Any) -> Iterator[bytes]:
        member = _inflate.decompressobj(wbits=31)
        while packed:
            self.packed_bytes += len(packed)
            while packed:
                try:
                    plain = member.decompress(packed, BLOCK_BYTES)
                except _CORRUPT as error:
                    self.damage = f"corrupt gzip after {self.plain_bytes} plain bytes ({error})"
                    return
                self.plain_bytes += len(plain)
                self._refuse_bombs()
                self._need_room()
                if plain:
                    yield plain
                packed = member.unconsumed_tail
                if member.eof:
                    # gzip files may be concatenated; anything else after the end is padding
                    packed = member.unused_data.lstrip(b"\0")
                    if not packed:
                        packed = file.read(BLOCK_BYTES)
                        self.packed_bytes += len(packed)
                    if not packed.startswith(GZIP_MAGIC):
                        return
                    member = _inflate.decompressobj(wbits=31)
                elif not plain and not packed:
                    break
            packed = file.read(BLOCK_BYTES)
        self.damage = f"truncated gzip: the file ends after {self.plain_bytes} plain bytes"

    def _need_room(self) -> None:
        if self.plain_bytes >= self._next_look:
            self._next_look = self.plain_bytes + _LOOK_EVERY_BYTES
            require_memory(shown(self.path))

    def _refuse_bombs(self) -> None:
        too_dense = self.plain_bytes > RATIO_APPLIES_FROM and self.plain_bytes > MAX_RATIO * self.packed_bytes
        if too_dense or self.plain_bytes > MAX_PLAIN_BYTES:
            raise TraceError(
                f"{shown(self.path)}: {self.packed_bytes} packed bytes expand beyond {self.plain_bytes} "
                f"(limits: {MAX_RATIO}-fold, {MAX_PLAIN_BYTES} bytes); record fewer steps, or remove the file"
            )
