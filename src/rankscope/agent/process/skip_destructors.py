"""Process exits that must not run the destructors of C++ libraries.

Libkineto's destructors wait for threads. A forked child does not have these threads and would wait forever, and a
destructor that runs during recording crashes. Handlers of ``exit`` run in reverse order of registration, and glibc
passes the exit code to ``on_exit`` handlers: so the handlers registered here flush the C streams and then end the
process with its exit code.
"""

from __future__ import annotations

import contextlib
import ctypes

__all__ = ["skip_destructors"]


def skip_destructors() -> None:
    """Make ``exit(code)`` flush the C streams and then end the process with ``code`` at once.

    Python's own exit (atexit, flushing, finalisation) comes before it and is not affected. ``on_exit`` exists in glibc
    only; elsewhere this does nothing.
    """
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.on_exit(libc["_exit"], None)
        libc["__cxa_atexit"](libc.fcloseall, None, None)
