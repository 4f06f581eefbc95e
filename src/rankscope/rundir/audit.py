"""Audit log of a run: ``audit.jsonl`` in its directory, with one line for each action on the run, only appended to.

It is a record for cooperating users, not a protection: whoever can write the directory can also remove the file, and
``rankscope verify`` does not detect that. No function here raises or blocks.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from rankscope.records.secrets import mask_arguments, mask_text
from rankscope.rundir.layout import RunDir

__all__ = ["AUDIT", "AUDITS", "append_action", "run_of"]

AUDIT = "audit.jsonl"
AUDITS = r"audit(?:\.[^/]+)?\.jsonl"
"""Regular expression of the names of all logs of a run; see ``by`` of :func:`append_action`."""
_DEEPEST = 3
"""Most folders above a file in which its run is searched. A trace lies two folders below its run directory."""
_MOST_BYTES = 1 << 26
"""Largest size of a log, bytes; nothing is appended beyond it, so that a script in a loop cannot fill the disk."""


def run_of(path: Path) -> RunDir | None:
    """Return the run directory that a path is or lies in; None if there is none."""
    with contextlib.suppress(OSError, RuntimeError):
        path = path.resolve()
        for folder in (path, *path.parents[:_DEEPEST]):
            run = RunDir(folder)
            if run.nodes.is_dir() or os.path.lexists(run.manifest) or os.path.lexists(run.sealed_manifest):
                return run
    return None


def append_action(
    run_dir: RunDir, action: str, command: Sequence[str], *, sealed: bool = False, by: str = "", **more: str
) -> None:
    """Append a line with user, host, time and command; secrets are masked. Does nothing if the directory holds no run.

    Args:
        run_dir: the run directory.
        deed: the action: ``recorded``, ``asked for a window``, ``exported``, ``redacted``, ``verified``, ``pruned``.
        command: the command line.
        sealed: whether the run is encrypted; then only the verb of the command is written.
        by: name of a node that writes a log of its own, because a store cannot append to a file; empty for the shared
            log.
        more: further fields, for instance where a copy was written.
    """
    with contextlib.suppress(Exception):  # neither a job nor a command may fail because of the log
        if run_of(run_dir.path) is None:
            return
        words = mask_arguments(list(command))
        if sealed or run_dir.sealed_manifest.exists():  # the log is not encrypted
            words, more = words[:2], {}
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "deed": action,
            "user": _user(),
            "host": socket.gethostname(),
            "command": words,
            **{key: mask_text(text) for key, text in more.items()},
        }
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        path: Path = run_dir.path / (f"audit.{by}.jsonl" if by else AUDIT)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        shared = run_dir.path.stat().st_mode & stat.S_IWGRP
        handle = os.open(path, flags, 0o660 if shared else 0o600)
        try:
            if shared and os.fstat(handle).st_uid == os.geteuid():
                os.fchmod(handle, 0o660)  # independent of the umask, so that the group can append
            if os.fstat(handle).st_size + len(data) <= _MOST_BYTES:
                os.write(handle, data)  # a single write, so that lines of several hosts do not mix
        finally:
            os.close(handle)


def _user() -> str:
    try:
        return getpass.getuser()
    except Exception:  # the user id has no name, as in many containers
        return str(os.getuid())
