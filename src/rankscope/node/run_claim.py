"""The place of this node in its run, claimed once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rankscope.errors import RunDirError
from rankscope.node.earlier_attempts import tell_of_attempts
from rankscope.node.mirroring import Mirroring
from rankscope.records.running.node_task import NodeTask
from rankscope.rundir.claim import NodeClaim, claim, next_run_dir
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool
from rankscope.rundir.urls import last_name

__all__ = ["claim_run"]


def claim_run(
    spool: Spool, task: NodeTask, where: Mirroring, to: Path | None = None, *, patient: bool = True
) -> NodeClaim:
    """Claim the run directory of a task.

    Args:
        spool: of this node.
        task: names the directory, and who belongs to it.
        where: the store of the directory.
        to: a folder to use instead of the one that the task names.
        patient: a store that does not answer is waited for.

    Raises:
        RunDirError: the claim is refused.
        OSError: the directory does not answer.
    """
    identity: dict[str, Any] = {
        "launch": task.launch,
        "alone": task.alone,
        "owner": str(spool.path),
        "pid": task.launcher_pid,
        "elastic": task.elastic,
    }
    if to is None and where.url:
        try:
            granted = where.claims(task.run_id or last_name(where.url), task.node, patient=patient, **identity)
            if task.elastic and not spool.process_records():
                _tell_of_attempts_in_store(spool, where)
            where.end()
            return granted
        except OSError as error:
            where.close()
            raise RunDirError(f"{where.url} cannot be used: {error}; check the address and your rights") from error
        except RunDirError:
            where.close()
            raise
    if to is not None:
        run_dir, name = RunDir(to.absolute()), to.absolute().name
    elif task.run_dir is not None:
        run_dir, name = RunDir(Path(task.run_dir)), Path(task.run_dir).name
    else:
        run_dir, name = next_run_dir(Path(task.base))
    granted = claim(run_dir, task.run_id or name, task.node, **identity)
    if not task.alone and not spool.process_records():
        tell_of_attempts(spool, run_dir)
    return granted


def _tell_of_attempts_in_store(spool: Spool, where: Mirroring) -> None:
    part = RunDir(spool.part)
    tell_of_attempts(spool, part, where.state_of_others())
    shutil.rmtree(part.live_folder, ignore_errors=True)  # would not be renewed here
