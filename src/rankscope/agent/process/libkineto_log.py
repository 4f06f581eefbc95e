"""Suppress libkineto's log on the job's standard error, which may be closed or be one of the job's own files."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path

import torch

__all__ = ["silent_libkineto"]

_LEVEL = "_ZN9libkineto6Logger14severityLevel_E"
"""``libkineto::Logger::severityLevel_``, a ``std::atomic_int``: lines of a lower severity are not written."""
_NOTHING = 1 << 20
"""Above all severities. The highest is USDT, 5, by which torch 2.13 logs the begin and end of every profile
(libkineto/include/ILoggerObserver.h). No user sets this value, so it differs from the one that libkineto sets
itself."""


@contextlib.contextmanager
def silent_libkineto() -> Iterator[None]:
    """Suppress libkineto's log lines within this context. If the level cannot be accessed, nothing is changed.

    Libkineto sets the level itself when a process profiles for the first time; a value that it sets meanwhile is kept.
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
