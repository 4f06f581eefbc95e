"""Notices between the ranks of one node and their node helper: small files in the spool, written atomically.

All of them are in one folder, so that one ``stat`` shows whether any has changed, and the training thread can look at
every step. :mod:`rankscope.agent.carriers` relays notices that must reach other nodes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from rankscope.agent.process.guard import keep_message
from rankscope.limits import MAX_WINDOW_STEPS
from rankscope.records.codec import from_json, to_json
from rankscope.records.spec import DETAILS, CaptureRequest, Window
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["Notices"]

_MOST_CHARACTERS = 1 << 16
_SETTLED_NS = 50_000_000
"""Age in ns from which a change of the folder is known to be the last one. A change within the same tick of the
kernel's clock (at most 10 ms) leaves the same modification time."""
_SECOND_NS = 1_000_000_000


class Notices:
    """The notices of one attempt of the job on this node."""

    def __init__(self, spool: Spool, attempt: int) -> None:
        self._spool = spool
        self._attempt = attempt
        self._folder = os.fspath(spool.path)
        self._seen: int | None = None

    def changed(self) -> bool:
        """Return whether a notice may have been posted or removed since the last call, which must be by the same
        caller."""
        try:
            found = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - at every step
        except OSError:
            return True
        if found == self._seen:
            return False
        # Ask again at every step if the file system counts whole seconds, or if its clock is ahead.
        settled = time.time_ns() - found > _SETTLED_NS and found % _SECOND_NS != 0
        self._seen = found if settled else None
        return True

    def _path(self, name: str) -> Path:
        return self._spool.notice(self._attempt, name)

    def post(self, name: str, text: str = "") -> None:
        """Post a notice, which replaces an earlier one of this name. On a full disk it is lost."""
        self._write(self._path(name), text)

    def _write(self, path: Path, text: str) -> None:
        try:
            replace_text(path, text)
        except OSError as error:
            keep_message(f"ranks and helper could not be told something: {error}")

    def read(self, name: str) -> str | None:
        """Return the text of a notice; None if there is none."""
        try:
            with self._path(name).open(encoding="utf-8") as stream:
                return stream.read(_MOST_CHARACTERS)
        except (OSError, ValueError):  # absent; or no file descriptor is left, and the next look will find it
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
        """Announce when the next window opens; called on rank 0."""
        self.post(f"window_{window.number}", to_json(window))

    def announced(self, number: int) -> Window | None:
        """Return window ``number`` as announced; None if it was not announced.

        Raises:
            ValueError: the announcement is not a valid window.
        """
        text = self.read(f"window_{number}")
        return None if text is None else _checked(from_json(Window, text), number)

    def request(self, number: int) -> CaptureRequest | None:
        """Return the ``number``-th request from outside, which the node helper posts for every attempt, or None.

        Raises:
            ValueError: it is not a valid request, or asks for too much.
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
        """Return the steps that the node helper wants to be recorded; a later such notice replaces an earlier one.

        Raises:
            ValueError: it is not a valid request, or asks for too much.
        """
        text = self.read("pattern")
        return None if text is None else from_json(CaptureRequest, text)

    def ask(self, request: CaptureRequest) -> None:
        """Request a window for the script of this rank; called on any rank. A later request replaces an earlier one."""
        self.post("asked", to_json(request))

    def asked(self) -> CaptureRequest | None:
        """Return what a script requests, or None.

        Raises:
            ValueError: it is not a valid request.
        """
        text = self.read("asked")
        return None if text is None else from_json(CaptureRequest, text)

    def answered(self) -> int:
        """Return the number of requests that were answered, also by earlier attempts."""
        try:
            return max(0, int(self._spool.answered.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return 0

    def answer(self, count: int) -> None:
        """Note that the first ``count`` requests are answered."""
        self._write(self._spool.answered, str(count))

    def gathered_megabytes(self) -> float:
        """Return the size of what the node helper has placed in the run directory so far, in 10^6 bytes."""
        try:
            return float(self._spool.gathered.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0.0


def _checked(window: Window, number: int) -> Window:
    """Check conditions on several fields together.

    Raises:
        ValueError: one of them does not hold.
    """
    if window.number != number:
        raise ValueError(f"it says that it is window {window.number}")
    if not window.warm <= window.first <= window.last < window.first + MAX_WINDOW_STEPS:
        raise ValueError(
            f"it is to warm up from step {window.warm} and to record steps {window.first} to {window.last}; "
            f"at most {MAX_WINDOW_STEPS} steps are recorded"
        )
    return window
