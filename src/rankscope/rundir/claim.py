"""Claim a run directory for a launch, and a name in it for this node."""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.rundir.files import write_new
from rankscope.rundir.foreign import read_foreign, shown
from rankscope.rundir.layout import RunDir
from rankscope.rundir.numbered import next_folder

__all__ = ["NodeClaim", "claim", "next_run_dir", "read_claim"]

_MOST_BYTES = 1 << 16


@dataclass(kw_only=True)
class NodeClaim:
    """This node's place in a run."""

    run_dir: str
    run_id: str
    node: str


def claim(
    run_dir: RunDir,
    run_id: str,
    node: str | None,
    *,
    launch: str,
    alone: bool,
    owner: str = "",
    pid: int | None = None,
    elastic: bool = False,
) -> NodeClaim:
    """Claim a name for this node in a run directory, which other nodes of the same run may share.

    The first launch writes its identity; a launch with another identity is refused.

    Args:
        run_dir: the run directory, created if it does not exist.
        run_id: name of the run.
        node: a name unique in the run (the node rank). None uses the host name; several launchers of one run on one
            host then get ``host``, ``host.1`` and so on while the earlier ones run.
        launch: identity of the launch, equal for all launchers of one run and different for any other launch.
        alone: whether this is the only launcher of the run.
        owner: path of the spool, by which a restarted helper recognises the claim of its node.
        pid: process id of the launcher.
        elastic: whether nodes may leave the run and come back. A node that comes back gets another name.

    Raises:
        RunDirError: the directory holds another or a finished run, the name is claimed, or it cannot be written.
    """
    if run_dir.ended:
        raise RunDirError(f"{run_dir.path} holds a finished run; choose another run.dir (nothing is overwritten)")
    try:
        run_dir.nodes.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"cannot create {run_dir.nodes}: {error.strerror}; choose a writable run.dir") from error
    host = socket.gethostname()
    place = {"run_id": run_id, "launch": launch, "host": host, "pid": pid or os.getpid(), "spool": owner}
    _be_of_one_launch(run_dir, place)
    base = re.sub(r"[^\w.-]", "_", f"node_{node}" if node is not None else host)
    for number in range(1000):
        name = base if number == 0 else f"{base}.{number}"
        path = run_dir.node_claim(name)
        try:
            write_new(path, json.dumps(place))
        except RunDirError:
            taken = read_claim(path)
            if owner and taken.get("host") == host and taken.get("spool") == owner:
                return NodeClaim(run_dir=str(run_dir.path), run_id=run_id, node=name)
            may_follow = elastic or _alive(taken.get("pid"))
            if node is None and not alone and taken.get("host") == host and may_follow:
                continue
            raise _refused(run_dir, taken) from None
        except OSError as error:
            raise RunDirError(
                f"cannot write to {run_dir.nodes}: {error.strerror}; choose a writable run.dir"
            ) from error
        return NodeClaim(run_dir=str(run_dir.path), run_id=run_id, node=name)
    raise RunDirError(f"{run_dir.path} is claimed by 1000 launchers of {host}; choose another run.dir")


def _be_of_one_launch(run_dir: RunDir, place: dict[str, Any]) -> None:
    try:
        write_new(run_dir.launch, json.dumps(place))
    except RunDirError:
        theirs = read_claim(run_dir.launch)
        if theirs.get("launch") != place["launch"]:
            raise _refused(run_dir, theirs) from None
    except OSError as error:
        raise _not_writable(run_dir, error) from error
    for other in sorted(run_dir.nodes.glob("*.claim.json")):
        theirs = read_claim(other)
        if theirs.get("launch") != place["launch"]:
            raise _refused(run_dir, theirs)


def _not_writable(run_dir: RunDir, error: OSError) -> RunDirError:
    return RunDirError(f"cannot write to {run_dir.nodes}: {error.strerror}; choose a writable run.dir")


def _refused(run_dir: RunDir, theirs: dict[str, Any]) -> RunDirError:
    owner = f"run {theirs.get('run_id')!r} (pid {theirs.get('pid')} on {theirs.get('host')})"
    return RunDirError(
        f"{run_dir.path} belongs to {owner}; a second run needs a run.dir of its own, and so does the same "
        "job when it is started again (nothing is overwritten)"
    )


def read_claim(path: Path, remedy: str = "choose another run.dir") -> dict[str, Any]:
    """Read a claim.

    Raises:
        RunDirError: it cannot be read, so that its launch is unknown; the message ends with the remedy.
    """
    try:
        claim_fields = json.loads(read_foreign(path, _MOST_BYTES))
    except (ForeignFileError, ValueError) as error:
        raise RunDirError(f"{shown(path)} should be the claim of a node and is not ({error}); {remedy}") from error
    if not isinstance(claim_fields, dict):
        raise RunDirError(f"{shown(path)} is not the claim of a node; {remedy}")
    return claim_fields


def _alive(pid: object) -> bool:
    if not isinstance(pid, int) or not 0 < pid < 1 << 31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def next_run_dir(base: Path) -> tuple[RunDir, str]:
    """Make ``base/run_0001`` or the next free one. The name is the run id.

    Raises:
        RunDirError: it cannot be made.
    """
    path = next_folder(base, "run", "-S run.dir=")
    return RunDir(path), path.name
