"""Requests for windows of a running job: left in the run directory, passed on to the spools where the ranks look."""

from __future__ import annotations

import contextlib

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.records.spec import CaptureRequest
from rankscope.rundir.files import replace_text, write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from rankscope.rundir.spool import Spool

__all__ = ["RequestRelay", "answers", "ask"]


def ask(run_dir: RunDir, *, steps: int, warmup: int, detail: str) -> CaptureRequest:
    """Leave a request in the directory of a running job.

    Raises:
        RunDirError: there is no run, or it has ended.
    """
    if run_dir.manifest.exists():
        raise RunDirError(f"{run_dir.path} holds a run that has ended; only a running job can be asked for a window")
    if not any(run_dir.nodes.glob("*.claim.json")):
        raise RunDirError(f"{run_dir.path} is no run directory; `rankscope run` says at its start where it is")
    run_dir.request_folder.mkdir(exist_ok=True)
    number = len(run_dir.requests())
    while True:
        path = run_dir.request(number)
        request = CaptureRequest(name=path.stem, steps=steps, warmup=warmup, detail=detail)
        try:
            write_new(path, to_json(request))
        except RunDirError:  # somebody else asks, too
            number += 1
        else:
            return request


def answers(run_dir: RunDir, request: CaptureRequest) -> list[RankRecord]:
    """What the ranks have recorded for a request so far."""
    records = []
    for path in run_dir.path.glob("attempt_*/window_*/rank_*.json"):
        with contextlib.suppress(ForeignFileError):
            record = read_record(RankRecord, path)
            if record.origin == request.name:
                records.append(record)
    return records


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
                request = read_record(CaptureRequest, path)
            except ForeignFileError:
                self._passed.add(path.name)  # not ours
                continue
            replace_text(self._spool.request(len(self._passed)), to_json(request))
            self._passed.add(path.name)
