"""Display while a run is wrapped up: bars on a terminal, elsewhere occasional lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rankscope.rundir.spool import Spool

if TYPE_CHECKING:
    from rankscope.progress import ProgressCallbacks

__all__ = ["bars", "calmly", "gathering"]

Say = Callable[[str], None]


@contextlib.contextmanager
def bars(say: Say) -> Iterator[ProgressCallbacks | None]:
    """Draw bars while the block runs; None if lines have to be used."""
    with contextlib.ExitStack() as stack:
        doing = None
        with contextlib.suppress(Exception):  # the traces matter more than bars
            if sys.stderr.isatty():
                from rankscope.progress import show_progress

                doing = stack.enter_context(show_progress(say))
        yield doing if doing is not None and doing.drawn else None


def gathering(spool: Spool, doing: ProgressCallbacks | None, say: Say) -> Say:
    """Return a callback for waiting for the helper: bytes on a bar while traces are left, lines for everything else."""
    calm = calmly(say)
    if doing is None:
        return calm
    tell, whole = doing.bytes("gathering traces"), 0

    def told(text: str) -> None:
        nonlocal whole
        left = _bytes_left(spool)
        whole = max(whole, left)
        if left:
            with contextlib.suppress(OSError):  # losing the terminal must not stop the gathering
                tell(whole - left, whole)
        else:
            calm(text)

    return told


def _bytes_left(spool: Spool) -> int:
    """Return the bytes of the traces that ranks have announced and the helper has not placed."""
    size = 0
    for record in spool.records():
        with contextlib.suppress(OSError):  # placed at this moment
            size += spool.trace(*map(int, record.stem.split("_")[1:])).stat().st_size
    return size


def calmly(say: Say, pause_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> Say:
    """Pass progress on, but at most one line every ``pause_s`` seconds: the caller polls many times a second."""
    next_at = clock() + pause_s / 5  # a wait of a second needs no line

    def told(text: str) -> None:
        nonlocal next_at
        if clock() >= next_at:
            next_at = clock() + pause_s
            say(text)

    return told
