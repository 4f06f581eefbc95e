"""Which run directory a launcher may use, and under which name its node takes part."""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import RunDirError
from rankscope.rundir.files import write_new
from rankscope.rundir.layout import RunDir

__all__ = ["NodeClaim", "claim", "next_run_dir"]


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """This node's seat in a run."""

    run_id: str
    node: str


def claim(run_dir: RunDir, run_id: str, node: str | None) -> NodeClaim:
    """Take this node's seat in a run directory that other nodes of the same run may share.

    Args:
        run_dir: created when missing.
        run_id: what the nodes of one run have in common.
        node: a name unique in the run (the node rank), or None to be known by host name; several launchers of one
            run on one host then get ``host``, ``host.1`` and so on while the earlier ones still live.

    Raises:
        RunDirError: the directory holds another or a finished run, this seat is taken, or it cannot be written.
    """
    if run_dir.manifest.exists():
        raise RunDirError(f"{run_dir.path} holds a finished run; choose another run.dir (nothing is overwritten)")
    try:
        run_dir.nodes.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"cannot create {run_dir.nodes}: {error.strerror}; choose a writable run.dir") from error
    for other in sorted(run_dir.nodes.glob("*.claim.json")):
        theirs = json.loads(other.read_text(encoding="utf-8"))["run_id"]
        if theirs != run_id:
            raise RunDirError(
                f"{run_dir.path} belongs to run {theirs!r}, this is run {run_id!r}; choose another run.dir"
            )
    host = socket.gethostname()
    base = re.sub(r"[^\w.-]", "_", f"node_{node}" if node is not None else host)
    seat = {"run_id": run_id, "host": host, "pid": os.getpid()}
    for number in range(1000):
        name = base if number == 0 else f"{base}.{number}"
        path = run_dir.node_claim(name)
        try:
            write_new(path, json.dumps(seat))
        except RunDirError:
            taken = json.loads(path.read_text(encoding="utf-8"))
            if node is None and taken["host"] == host and _alive(taken["pid"]):
                continue
            raise RunDirError(
                f"{run_dir.path} was already used by {name} (pid {taken['pid']} on {taken['host']}); "
                "a second run needs its own run.dir"
            ) from None
        return NodeClaim(run_id=run_id, node=name)
    raise RunDirError(f"{run_dir.path} is claimed by 1000 launchers of {host}; choose another run.dir")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def next_run_dir(base: Path) -> tuple[RunDir, str]:
    """Make ``base/run_0001`` or the next free one. The name is the run id: a number, never a clock."""
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"cannot create {base}: {error.strerror}; name a writable folder with -S run.dir=") from error
    taken = [int(m[1]) for entry in base.iterdir() if (m := re.fullmatch(r"run_(\d+)", entry.name))]
    number = max(taken, default=0) + 1
    while True:
        path = base / f"run_{number:04d}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        except OSError as error:
            raise RunDirError(f"cannot write to {base}: {error.strerror}; name a folder with -S run.dir=") from error
        else:
            return RunDir(path), path.name
