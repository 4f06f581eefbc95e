"""How uploads to a store, and downloads, show that they proceed: on a slow link one file takes longer than a store that
is alive may be silent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import IO, Any

__all__ = ["Telling", "paced"]

_PART = 5 << 20
"""Bytes of one part, the least that S3 accepts."""


def paced(
    call: Callable[..., Any], asynchronous: Callable[..., Any] | None, moved: Callable[[], None]
) -> dict[str, Any]:
    """Return the arguments with which a file system of fsspec copies one file and tells of each part.

    Args:
        call: its ``put_file`` or ``get_file``.
        asynchronous: the coroutine function that this calls, if there is one: it has the parameters.
        moved: called after each part.
    """
    from fsspec.callbacks import Callback

    own: dict[str, Any] = {"callback": Callback(hooks={"moved": lambda _size, _value, **_more: moved()})}
    known = inspect.signature(asynchronous or call).parameters
    # Parts at the same time would share the link, and all be complete late.
    own |= {name: value for name, value in (("chunksize", _PART), ("max_concurrency", 1)) if name in known}
    return own


class Telling:
    """A stream that tells of each block that was read from it."""

    def __init__(self, stream: IO[bytes], moved: Callable[[], None]) -> None:
        self._stream, self._moved = stream, moved

    def read(self, size: int = -1) -> bytes:
        """Return the next block."""
        block = self._stream.read(size)
        self._moved()
        return block
