"""What the ranks of one node tell each other and their helper: small files in the spool, written whole or not at all.

All are files of one folder, so that one ``stat`` tells whether anything has been put up since: the training thread can
look at every step. What must reach other nodes is carried there by :mod:`rankscope.agent.carriers`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from rankscope.agent.process.guard import tell
from rankscope.limits import MAX_WINDOW_STEPS
from rankscope.records.codec import from_json, to_json
from rankscope.records.spec import DETAILS, CaptureRequest, Window
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["Notices"]

_MOST_CHARACTERS = 1 << 16
_SETTLED_NS = 50_000_000
"""A change that follows another within a tick of the kernel's clock (10 ms at most) leaves the same time of change. One
that is older than this is known to have been the last before the folder was looked at."""
_SECOND_NS = 1_000_000_000


class Notices:
    """Notices of one attempt of the job on this node."""

    def __init__(self, spool: Spool, attempt: int) -> None:
        self._spool = spool
        self._attempt = attempt
        self._folder = os.fspath(spool.path)
        self._seen: int | None = None

    def changed(self) -> bool:
        """Whether something may have been put up or taken away since the last call. For one caller."""
        try:
            found = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - at every step
        except OSError:
            return True
        if found == self._seen:
            return False
        # A file system that counts whole seconds is asked at every step, and so is one whose clock is ahead.
        settled = time.time_ns() - found > _SETTLED_NS and found % _SECOND_NS != 0
        self._seen = found if settled else None
        return True

    def _path(self, name: str) -> Path:
        return self._spool.notice(self._attempt, name)

    def post(self, name: str, text: str = "") -> None:
        """Post a notice, which replaces an earlier one of that name. On a full disk it is lost."""
        self._write(self._path(name), text)

    def _write(self, path: Path, text: str) -> None:
        try:
            replace_text(path, text)
        except OSError as error:
            tell(f"ranks and helper could not be told something: {error}")

    def read(self, name: str) -> str | None:
        """The text of a notice, or None."""
        try:
            with self._path(name).open(encoding="utf-8") as stream:
                return stream.read(_MOST_CHARACTERS)
        except (OSError, ValueError):  # absent; or no file handle is left: then the next look finds it
            return None

    def stands(self, name: str) -> bool:
        """Return whether there is such a notice."""
        try:
            return self._path(name).exists()
        except OSError:
            return False

    def take(self, name: str) -> bool:
        """Remove a notice; return whether there was one."""
        try:
            self._path(name).unlink()
        except OSError:
            return False
        return True

    # ------------------------------------------------------------ the notices

    def announce(self, window: Window) -> None:
        """Announce where the next window opens; called on rank 0."""
        self.post(f"window_{window.number}", to_json(window))

    def announced(self, number: int) -> Window | None:
        """Window ``number`` as announced; None also for what is no window.

        Raises:
            ValueError: it was announced, and is none.
        """
        text = self.read(f"window_{number}")
        return None if text is None else _checked(from_json(Window, text), number)

    def request(self, number: int) -> CaptureRequest | None:
        """The ``number``-th request from outside; the node helper puts them up for every attempt.

        Raises:
            ValueError: it is there and is no request, or asks for too much.
        """
        try:
            with self._spool.request(number).open(encoding="utf-8") as stream:
                text = stream.read(_MOST_CHARACTERS)
        except OSError:
            return None
        request = from_json(CaptureRequest, text)
        if request.detail not in ("", *DETAILS):
            raise ValueError(f"detail is {request.detail!r}, none of {', '.join(DETAILS)}")
        return request

    def pattern(self) -> CaptureRequest | None:
        """Steps that the node helper wants to be recorded; it replaces what it wanted before.

        Raises:
            ValueError: it is no request, or asks for too much.
        """
        text = self.read("pattern")
        return None if text is None else from_json(CaptureRequest, text)

    def answered(self) -> int:
        """How many requests have been answered, by earlier attempts too."""
        try:
            return max(0, int(self._spool.answered.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return 0

    def answer(self, count: int) -> None:
        """Rank 0 has announced a window for the ``count``-th request."""
        self._write(self._spool.answered, str(count))

    def gathered_megabytes(self) -> float:
        """Return how much the helper has placed in the run directory so far (10^6 bytes)."""
        try:
            return float(self._spool.gathered.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0.0


def _checked(window: Window, number: int) -> Window:
    """Check what concerns several fields together."""
    if window.number != number:
        raise ValueError(f"it says that it is window {window.number}")
    if not window.warm <= window.first <= window.last < window.first + MAX_WINDOW_STEPS:
        raise ValueError(
            f"it is to warm up from step {window.warm} and to record steps {window.first} to {window.last}; "
            f"at most {MAX_WINDOW_STEPS} steps are recorded"
        )
    return window
