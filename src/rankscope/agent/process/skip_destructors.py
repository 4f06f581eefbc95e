"""Ends of processes that must not run the destructors of C++ libraries.

libkineto's wait for threads: a forked child does not have them and would wait without end, and while it records they
crash. Handlers of ``exit`` run in reverse order of registration, and glibc passes ``on_exit`` the exit code: so this
handler flushes the C streams and ends the process with the code that it had.
"""

from __future__ import annotations

import contextlib
import ctypes

__all__ = ["skip_destructors"]


def skip_destructors() -> None:
    """From here on ``exit(code)`` flushes the C streams, then ends the process with ``code`` at once.

    Python's own end (atexit, flushing, finalization) comes before it and is not touched. ``on_exit`` is glibc's;
    elsewhere nothing happens.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.on_exit(libc["_exit"], None)
        libc["__cxa_atexit"](libc.fcloseall, None, None)
