"""Requests for windows, from the run directory to the spool of this node, where the ranks look."""

from __future__ import annotations

from rankscope.model import CaptureRequest, from_json, to_json
from rankscope.rundir import RunDir, Spool, replace_text

__all__ = ["RequestRelay"]


class RequestRelay:
    """Passes requests on in the order in which they were made."""

    def __init__(self, spool: Spool, run_dir: RunDir) -> None:
        self._spool = spool
        self._run_dir = run_dir
        self._passed: set[str] = set()

    def relay(self) -> None:
        """Pass on what is new.

        Raises:
            OSError: the run directory cannot be read.
        """
        for path in self._run_dir.requests():
            if path.name in self._passed:
                continue
            try:
                request = from_json(CaptureRequest, path.read_bytes())
            except ValueError:
                self._passed.add(path.name)  # not ours
                continue
            replace_text(self._spool.request(len(self._passed)), to_json(request))
            self._passed.add(path.name)
