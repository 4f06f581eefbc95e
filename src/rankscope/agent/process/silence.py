"""Keep libkineto's log away from the job's standard error, which may be closed or be a file of the job's own."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path

import torch

__all__ = ["silent_libkineto"]

_LEVEL = "_ZN9libkineto6Logger14severityLevel_E"
"""``libkineto::Logger::severityLevel_``, an ``std::atomic_int``: lines of a lower severity are not written."""
_NOTHING = 1 << 20
"""Above all there are; the highest is USDT, 5, by which torch 2.13 logs the begin and end of every profile
(libkineto/include/ILoggerObserver.h). No user sets this one, so it differs from what libkineto sets itself."""


@contextlib.contextmanager
def silent_libkineto() -> Iterator[None]:
    """Write no line of libkineto's within this context. Where the level cannot be reached, nothing is changed.

    Libkineto sets the level itself when a process profiles for the first time, and what it has set is left.
    """
    level = _level()
    if level is None:
        yield
        return
    before, level.value = level.value, _NOTHING
    try:
        yield
    finally:
        if level.value == _NOTHING:
            level.value = before


@functools.cache
def _level() -> ctypes.c_int | None:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        return ctypes.c_int.in_dll(ctypes.CDLL(str(library)), _LEVEL)
    except (OSError, ValueError):
        return None
