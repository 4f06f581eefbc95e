"""Relay windows that rank 0 announces to other nodes through the run directory, if the job has no store for that.

The ranks request this by a notice in the spool (:mod:`rankscope.agent.carriers.run_directory`); no rank uses the shared
disk.
"""

from __future__ import annotations

import contextlib

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.limits import MAX_WINDOWS
from rankscope.records.codec import from_json, to_json
from rankscope.records.spec import Window
from rankscope.rundir.files import replace_text, write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from rankscope.rundir.spool import Spool

__all__ = ["AnnouncementRelay"]


class AnnouncementRelay:
    """Relays the announcements of each attempt whose ranks have requested it.

    Args:
        spool: of this node.
        run_dir: of the run.
    """

    def __init__(self, spool: Spool, run_dir: RunDir) -> None:
        self._spool = spool
        self._run_dir = run_dir
        self._next: dict[int, int] = {}

    def relay(self) -> None:
        """Relay new announcements: from the node of rank 0 to the others.

        Raises:
            OSError: the run directory or the spool cannot be read or written.
        """
        for asked in sorted(self._spool.path.glob("notice_*_carry")):
            attempt = int(asked.name.split("_")[1])
            carry = self._carry_out if asked.read_text(encoding="utf-8") == "head" else self._carry_in
            number = self._next.setdefault(attempt, 0)
            while number < MAX_WINDOWS and carry(attempt, number):
                number = self._next[attempt] = number + 1

    def _carry_out(self, attempt: int, number: int) -> bool:
        notice = self._spool.notice(attempt, f"window_{number}")
        if not notice.exists():
            return False
        window = from_json(Window, notice.read_text(encoding="utf-8"))
        target = self._run_dir.announcement(attempt, number)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(RunDirError):  # an earlier helper had done it
            write_new(target, to_json(window))
        return True

    def _carry_in(self, attempt: int, number: int) -> bool:
        path = self._run_dir.announcement(attempt, number)
        if not path.exists():
            return False
        with contextlib.suppress(ForeignFileError):  # it is ignored, as if the window had not been announced
            replace_text(self._spool.notice(attempt, f"window_{number}"), to_json(read_record(Window, path)))
        return True
