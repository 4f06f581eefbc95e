"""Requests for windows of a running job: written to the run directory, and relayed to the spools that the ranks
read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.limits import MAX_REQUESTS
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.records.spec import DETAILS, CaptureRequest
from rankscope.rundir.begun import require_begun
from rankscope.rundir.files import replace_text, write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from rankscope.rundir.spool import Spool

__all__ = ["RequestRelay", "answers", "ask"]


def ask(run_dir: RunDir, *, steps: int, warmup: int, detail: str) -> CaptureRequest:
    """Leave a request in the directory of a running job.

    Raises:
        RunDirError: there is no run, it has ended, or it has too many requests.
    """
    if run_dir.ended:
        raise RunDirError(f"{run_dir.path} holds a run that has ended; only a running job can be asked for a window")
    require_begun(run_dir)
    try:
        run_dir.request_folder.mkdir(exist_ok=True)
        number = len(run_dir.requests())
        while number < MAX_REQUESTS:
            path = run_dir.request(number)
            request = CaptureRequest(name=path.stem, steps=steps, warmup=warmup, detail=detail)
            try:
                write_new(path, to_json(request))
            except RunDirError:  # another request took this number
                number += 1
            else:
                return request
    except OSError as error:
        raise RunDirError(f"cannot write to {run_dir.request_folder}: {error.strerror}") from error
    raise RunDirError(
        f"{run_dir.path} was asked for {MAX_REQUESTS} windows, the most that a run answers; for windows every so many "
        "steps start it with -S schedule.every=N"
    )


def answers(run_dir: RunDir, request: CaptureRequest) -> list[RankRecord]:
    """Return what the ranks have recorded for a request so far."""
    records = []
    for path in run_dir.path.glob("attempt_*/window_*/rank_*.json"):
        with contextlib.suppress(ForeignFileError):
            record = read_record(RankRecord, path)
            if record.origin == request.name:
                records.append(record)
    return records


class RequestRelay:
    """Relays requests in the order in which they were made; the spool shows which were relayed.

    Args:
        spool: of this node.
        run_dir: of the run.
        tell: called once, with the reason, for each request that cannot be relayed.
    """

    def __init__(self, spool: Spool, run_dir: RunDir, tell: Callable[[str], None] = lambda _: None) -> None:
        self._spool = spool
        self._run_dir = run_dir
        self._tell = tell
        self._count = 0
        self._done: set[str] = set()
        while (path := spool.request(self._count)).exists():
            self._count += 1
            with contextlib.suppress(ForeignFileError):
                self._done.add(f"{read_record(CaptureRequest, path).name}.json")

    def relay(self) -> None:
        """Relay new requests.

        Raises:
            OSError: the run directory cannot be read, or the spool not be written.
        """
        for path in self._run_dir.requests()[:MAX_REQUESTS]:
            if path.name in self._done:
                continue
            try:
                request = read_record(CaptureRequest, path)
                if request.detail not in ("", *DETAILS):
                    raise ForeignFileError(f"{path}: detail: {request.detail!r} is none of {', '.join(DETAILS)}")
            except ForeignFileError as error:
                self._done.add(path.name)
                self._tell(f"{path.name} was not passed on to the ranks: {error}")
                continue
            request.name = path.stem  # its answers are found by this name
            replace_text(self._spool.request(self._count), to_json(request))
            self._count += 1
            self._done.add(path.name)
