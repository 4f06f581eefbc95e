"""One run of several ``rankscope exec`` on a node, each before a rank: the first starts the helper, the others join.

Each then becomes its command. The helper sees that the job is over when the last of their processes is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rankscope.errors import RankscopeError, RunDirError
from rankscope.records.codec import from_json, to_json
from rankscope.records.running.node_task import Begun
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["Refused", "join", "sign_in", "spool_of"]

_FIRST_TAKES_S = 30.0
"""Longest time for which others wait for the first: it composes the configuration, and waits for the run directory for
10 s at most."""
_POLL_S = 0.02


class Refused(RankscopeError):  # noqa: N818 - like RunDirError, which it repeats
    """The first was told that it cannot start; so are all."""

    def __init__(self, begun: Begun) -> None:
        super().__init__(begun.refused)
        self.exit_code = begun.exit_code


def spool_of(launcher: str) -> Spool:
    """The folder that all ``exec`` of one launch share on this node, made private.

    Raises:
        OSError: it cannot be made, or is somebody else's.
    """
    name = hashlib.sha256(f"{os.getuid()} {launcher}".encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"rankscope_{name}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o170077 != 0o040000:
        raise PermissionError(f"{path} is somebody else's, or no private folder")
    return Spool(path)


def join(spool: Spool, start: Callable[[], None]) -> bool:
    """Take part: be the first, or wait for it.

    Args:
        spool: of this node.
        start: starts the run; called in the first only.

    Returns:
        Whether this is the first.

    Raises:
        Refused: nobody may start.
        Exception: what ``start`` raised; the others go on without recording.
        OSError: the first did not come to an end in time.
    """
    with _locked(spool):
        first = not spool.begun.exists()
        if first:
            refused = None
            try:
                start()
                begun = Begun()
            except RankscopeError as error:
                refused, begun = error, Begun(refused=str(error), exit_code=error.exit_code)
            replace_text(spool.begun, to_json(begun))
            if refused is not None:
                raise refused
        begun = from_json(Begun, spool.begun.read_bytes())
        if begun.refused:
            raise Refused(begun)
    return first


def sign_in(spool: Spool, pid: int) -> None:
    """Let the helper know of a process whose end it has to wait for."""
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    replace_text(spool.joined(pid), stat.rpartition(")")[2].split()[19])


@contextlib.contextmanager
def _locked(spool: Spool) -> Iterator[None]:
    handle = os.open(spool.begin_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _FIRST_TAKES_S
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RunDirError(f"no run was started on this node within {_FIRST_TAKES_S:.0f} s") from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)
