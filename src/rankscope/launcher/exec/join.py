"""One run of several ``rankscope exec`` on a node, each before a rank: the first starts the helper, the others join.

Each then becomes its command. The helper notices the end of the job when the last of their processes has exited.
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
from rankscope.procfs import BEGUN, read_stat
from rankscope.records.codec import from_json, to_json
from rankscope.records.running.node_task import Begun
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["Refused", "join", "sign_in", "spool_of"]

_FIRST_TAKES_S = 30.0
"""Longest time for which the others wait for the first, which composes the configuration and waits up to 10 s for the
run directory."""
_POLL_S = 0.02


class Refused(RankscopeError):  # noqa: N818 - like RunDirError, which it repeats
    """The run was refused to the first process, and so to all."""

    def __init__(self, begun: Begun) -> None:
        super().__init__(begun.refused)
        self.exit_code = begun.exit_code


def spool_of(launcher: str) -> Spool:
    """Return the folder that all ``exec`` of one launch share on this node, and create it privately.

    Raises:
        OSError: it cannot be created, or belongs to another user.
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
    """Join the run: be the first, or wait for the first.

    Args:
        spool: of this node.
        start: starts the run; called in the first process only.

    Returns:
        Whether this process is the first.

    Raises:
        Refused: no process may start.
        Exception: what ``start`` raised; the others continue without recording.
        OSError: the first did not finish in time.
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
    """Register a process with the helper, which waits for its end."""
    replace_text(spool.joined(pid), read_stat(Path(f"/proc/{pid}"))[BEGUN])


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
