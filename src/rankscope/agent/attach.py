"""``rankscope.attach``: start recording from inside a script, for notebooks and launchers whose command line is
fixed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rankscope import own_process
from rankscope.rank_identity import Identity, identity_from, launcher_process
from rankscope.rundir.spool import Spool, disabled

__all__ = ["Attached", "attach"]

_PATIENCE_S = 60.0
"""Limit for the process that begins the run, which itself waits at most 10 s for the run directory and 30 s for other
processes."""
_closed = False
"""Whether recording in this process has been ended by :meth:`Attached.close`."""


class Attached:
    """Result of :func:`attach`: the run directory, and a way to end recording before the process exits."""

    def __init__(self, run_dir: str | None = None, spool: Spool | None = None) -> None:
        self.run_dir = run_dir
        """The run directory; None if nothing is recorded or if the directory is not known yet."""
        self._spool = spool

    @property
    def recording(self) -> bool:
        """Whether this process is recorded, provided that it turns out to be a rank."""
        return self._spool is not None

    def close(self) -> None:
        """End recording in this process. This is for notebooks, whose process continues. The report is written when all
        processes of the run have called this or have exited. Raises nothing."""
        global _closed  # noqa: PLW0603 - of this process, as the agent is
        spool, self._spool = self._spool, None
        if spool is None:
            return
        _closed = True
        with contextlib.suppress(Exception):
            session = sys.modules.get("rankscope.agent.session")
            if session is not None:
                session.end()
            spool.joined(os.getpid()).unlink()

    def __enter__(self) -> Attached:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.close()


def attach(
    run_dir: Path | str | None = None,
    schedule: str | Mapping[str, int] | None = None,
    settings: Sequence[str] = (),
) -> Attached:
    """See :func:`rankscope.attach`."""
    if disabled(os.environ):
        return Attached()
    if "rankscope.agent.session" in sys.modules or "rankscope.agent.bootstrap" in sys.modules:
        if _closed:
            _warn("this process has been recorded, which is possible once; restart it, in a notebook its kernel")
        return Attached()
    try:
        return _attach(run_dir, schedule, settings)
    except Exception as error:  # errors of rankscope must not stop the job
        _warn(" ".join(str(error).split()))
        return Attached()


def _warn(why: str) -> None:
    """Warn at the caller's line; where warnings are errors (``python -W error``), only write to standard error."""
    message = f"rankscope does not record: {why}"
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=4)
    except RuntimeWarning:
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{message}\n")


def _attach(run_dir: Path | str | None, schedule: str | Mapping[str, int] | None, settings: Sequence[str]) -> Attached:
    overrides = [f"schedule={schedule}"] if isinstance(schedule, str) else []
    overrides += [f"schedule.{key}={value}" for key, value in schedule.items()] if isinstance(schedule, Mapping) else []
    overrides += settings
    if run_dir is not None:
        place = str(Path(run_dir).absolute()).replace("\\", "\\\\").replace("'", "\\'")
        overrides.append(f"run.dir='{place}'")
    identity = identity_from(os.environ)
    launch = _launch(identity)
    if launch is not None and run_dir is None:
        raise ValueError("a job that may have several nodes needs run_dir, a folder that all of them see")
    request = {
        "key": f"attach {run_dir and Path(run_dir).absolute()} {launch} {_parent(identity)}",
        "launch": launch, "overrides": overrides, "argv": list(sys.argv), "pid": os.getpid(), "cwd": str(Path.cwd()),
    }  # fmt: skip
    done = subprocess.run(
        own_process.command("rankscope.launcher.exec.attach_process", json.dumps(request)),
        env=own_process.environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=False,
    )  # fmt: skip
    lines = done.stdout.decode(errors="replace").splitlines()
    answer = json.loads(lines[-1]) if lines else {"error": f"the run could not be begun ({done.returncode})"}
    if "error" in answer:
        raise RuntimeError(answer["error"])
    spool = Spool(Path(answer["spool"]))

    from rankscope.agent import bootstrap

    bootstrap.arm(str(spool.spec), certain=bootstrap.is_rank(os.environ) and _group() is None)
    return Attached(answer["run_dir"] or None, spool)


def _parent(identity: Identity | None) -> str:
    """Return the process that started the ranks of this node; without a known launcher, the parent of this process."""
    return launcher_process(identity) if identity is not None else launcher_process(Identity("none", -1))


def _group() -> Any:
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def _launch(identity: Identity | None) -> str | None:
    """Return an identifier that all nodes of this job share and no other job has; None if the job has one node.

    Raises:
        ValueError: the processes of the job cannot be determined.
    """
    if identity is not None and identity.local_world_size is not None and not identity.several_nodes:
        return None
    if (dist := _group()) is not None:
        if dist.get_world_size() == 1:
            return None
        store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - no public name
        return str(store.compare_set("rankscope/launch", "", secrets.token_hex(16)).decode())
    if identity is None or identity.world_size == 1:
        return None
    if identity.job is not None:
        return f"{identity.launcher} {identity.job}"
    raise ValueError("it cannot be told which processes belong together; call it after init_process_group")
