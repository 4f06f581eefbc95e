"""What the ranks of one node tell each other and their helper: small files in the spool, written whole or not at all.

Reading is a ``stat`` in the local file system, so the training thread can look at every step. What must reach other
nodes is carried there by :mod:`rankscope.agent.windows.store_relay`.
"""

from __future__ import annotations

from pathlib import Path

from rankscope.records.codec import from_json, to_json
from rankscope.records.spec import CaptureRequest, Window
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["Notices"]


class Notices:
    """Notices of one attempt of the job on this node."""

    def __init__(self, spool: Spool, attempt: int) -> None:
        self._spool = spool
        self._attempt = attempt

    def _path(self, name: str) -> Path:
        return self._spool.notice(self._attempt, name)

    def post(self, name: str, text: str = "") -> None:
        """Put up a notice; the last of a name stands."""
        replace_text(self._path(name), text)

    def read(self, name: str) -> str | None:
        """The text of a notice, or None."""
        try:
            return self._path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def stands(self, name: str) -> bool:
        """Is there such a notice?"""
        return self._path(name).exists()

    def take(self, name: str) -> bool:
        """Remove a notice; was there one?"""
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    # ------------------------------------------------------------ what is said

    def announce(self, window: Window) -> None:
        """Rank 0 says where the next window opens."""
        self.post(f"window_{window.number}", to_json(window))

    def announced(self, number: int) -> Window | None:
        """Window ``number`` as announced."""
        text = self.read(f"window_{number}")
        return None if text is None else from_json(Window, text)

    def ready(self, number: int, local_rank: int) -> None:
        """Libkineto of this rank could record window ``number``, or need not."""
        self.post(f"ready_{number}_{local_rank}")

    def count_ready(self, number: int, local_world: int) -> int:
        """Ranks of this node that are ready."""
        return sum(self.stands(f"ready_{number}_{rank}") for rank in range(local_world))

    def request(self, number: int) -> CaptureRequest | None:
        """The ``number``-th request from outside; the node helper puts them up for every attempt."""
        try:
            return from_json(CaptureRequest, self._spool.request(number).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def answered(self) -> int:
        """How many requests have been answered, by earlier attempts too."""
        try:
            return int(self._spool.answered.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return 0

    def answer(self, count: int) -> None:
        """Rank 0 has announced a window for the ``count``-th request."""
        replace_text(self._spool.answered, str(count))

    def gathered_megabytes(self) -> float:
        """What the helper has placed in the run directory so far."""
        try:
            return float(self._spool.gathered.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return 0.0
