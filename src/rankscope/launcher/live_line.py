"""A line on the state of the job on standard error, now and then, from what the node's helper writes to the spool.

It is printed after 1, 5 and 30 minutes and then every hour, and at once when the step logs name a rank or the job
stands still; at most once a minute. With ``live.mode=line``, one line of a terminal is redrawn every two seconds
instead. No part of the job waits for it.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rankscope.between.live import in_a_line
from rankscope.records.codec import from_json
from rankscope.records.running.live import NodeLive
from rankscope.rundir.spool import Spool

__all__ = ["LiveLine", "live_line"]

POLL_S = 2.0
MINUTES = (1, 5, 30)
HOURLY_S = 3600.0
NEWS_S = 60.0


class LiveLine:
    """Decides when a line is due. Uses only what it is given.

    Args:
        say: prints a line.
        clock: seconds, monotonic.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._begun = clock()
        self._count = 0
        self._news = ""
        self._last: float | None = None

    def look(self, live: NodeLive) -> None:
        """Print the line if it is due, or if there is something new to report."""
        now = self._clock()
        if self._last is not None and now - self._last < NEWS_S:
            return
        news = live.news and live.news != self._news
        if not news and now - self._begun < self._due_s():
            return
        line = in_a_line([live])
        if not line:
            return
        if not news:
            self._count += 1
        self._news, self._last = live.news, now
        self._say(line)

    def _due_s(self) -> float:
        if self._count < len(MINUTES):
            return 60.0 * MINUTES[self._count]
        return 60.0 * MINUTES[-1] + HOURLY_S * (self._count - len(MINUTES) + 1)


@contextlib.contextmanager
def live_line(spool: Spool, mode: str, say: Callable[[str], None]) -> Iterator[None]:
    """Print lines while the block runs; if that is not possible, print none."""
    over = threading.Event()
    if mode != "off":
        with contextlib.suppress(RuntimeError):  # no thread can be started
            drawn = mode == "line" and sys.stderr is not None and sys.stderr.isatty()
            threading.Thread(target=_draw if drawn else _tell, args=(spool, over, say), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _tell(spool: Spool, over: threading.Event, say: Callable[[str], None]) -> None:
    line = LiveLine(say)
    while not over.wait(POLL_S):
        with contextlib.suppress(Exception):  # the line is omitted
            if (live := _read(spool)) is not None and not over.is_set():
                line.look(live)


def _draw(spool: Spool, over: threading.Event, _say: Callable[[str], None]) -> None:
    width = 0
    while not over.wait(POLL_S):
        with contextlib.suppress(Exception):
            if (live := _read(spool)) is not None and not over.is_set():
                room = shutil.get_terminal_size().columns - 12
                text = f"rankscope  {in_a_line([live], max(room, 20))}"
                sys.stderr.write("\r" + text.ljust(width) + "\r")
                sys.stderr.flush()
                width = len(text)
    with contextlib.suppress(Exception):
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()


def _read(spool: Spool) -> NodeLive | None:
    try:
        return from_json(NodeLive, spool.live.read_bytes())
    except (OSError, ValueError):
        return None
