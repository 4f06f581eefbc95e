"""Single keys of a terminal, while something is shown on it."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator

__all__ = ["key_within", "single_keys"]


@contextlib.contextmanager
def single_keys() -> Iterator[bool]:
    """Keys are there at once and are not echoed, while the block runs. Yields whether that is so: standard input may be
    no terminal, or another process group's."""
    try:
        import termios
        import tty
    except ImportError:  # not Unix
        yield False
        return
    try:
        terminal = sys.stdin.fileno()
        if os.tcgetpgrp(terminal) != os.getpgrp():
            raise OSError("in the background a change of the terminal would stop this process")
        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal)
    except (OSError, ValueError, AttributeError, termios.error):
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def key_within(seconds: float, *, keys: bool) -> str:
    """The key that is pressed within so many seconds; empty where none is.

    Args:
        seconds: how long to wait.
        keys: what :func:`single_keys` has said.
    """
    if not keys:
        time.sleep(seconds)
        return ""
    ready, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") if ready else ""
