"""Who did what with a run: a line a deed in ``audit.jsonl`` of its directory, added and never changed.

It helps those who may be trusted to remember; who may write the directory may also remove the file, which
``rankscope verify`` does not see. Nothing here raises, and nothing waits.
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

__all__ = ["AUDIT", "AUDITS", "note_deed", "run_of"]

AUDIT = "audit.jsonl"
AUDITS = r"audit(?:\.[^/]+)?\.jsonl"
"""Names of all logs that a run may have, as a regular expression: see ``by`` of :func:`note_deed`."""
_DEEPEST = 3
"""A trace lies two folders below its run."""
_MOST_BYTES = 1 << 26
"""Beyond it nothing is added: no script may fill a disk with its own deeds."""


def run_of(path: Path) -> RunDir | None:
    """The run that a path is, or lies in; None where it is of none."""
    with contextlib.suppress(OSError, RuntimeError):
        path = path.resolve()
        for folder in (path, *path.parents[:_DEEPEST]):
            run = RunDir(folder)
            if run.nodes.is_dir() or os.path.lexists(run.manifest) or os.path.lexists(run.sealed_manifest):
                return run
    return None


def note_deed(
    run_dir: RunDir, deed: str, command: Sequence[str], *, sealed: bool = False, by: str = "", **more: str
) -> None:
    """Add a line: user, host, time and command, secrets masked. Without a run in this directory nothing is written.

    Args:
        run_dir: of the run.
        deed: as ``recorded``, ``asked for a window``, ``exported``, ``redacted``, ``verified``, ``pruned``.
        command: the words of the command line.
        sealed: the run is encrypted: of the command only its verb is kept.
        by: node with a log of its own, since a store adds to no file; empty for the log that all add to.
        more: what else is worth knowing, as where a copy went.
    """
    with contextlib.suppress(Exception):  # it is a courtesy: neither a job nor a command fails for it
        if run_of(run_dir.path) is None:
            return
        words = mask_arguments(list(command))
        if sealed or run_dir.sealed_manifest.exists():  # of an encrypted run the command is nobody's either
            words, more = words[:2], {}
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "deed": deed,
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
                os.fchmod(handle, 0o660)  # whatever the umask of the first to write: others of the group write, too
            if os.fstat(handle).st_size + len(data) <= _MOST_BYTES:
                os.write(handle, data)  # one write: lines of several hosts do not mix
        finally:
            os.close(handle)


def _user() -> str:
    try:
        return getpass.getuser()
    except Exception:  # no name for this id, as in many containers
        return str(os.getuid())
