"""Read single keys from the terminal, without echo and without Enter."""

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
    """Switch the terminal to single keys without echo while the block runs, and restore it afterwards.

    Yields:
        Whether that was possible: not if standard input is no terminal, or another process group is in its foreground.
    """
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
    """Return the key that is pressed within some seconds; empty if none is.

    Args:
        seconds: how long to wait.
        keys: the value that :func:`single_keys` yielded. If it is False, this only waits.
    """
    if not keys:
        time.sleep(seconds)
        return ""
    ready, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") if ready else ""
