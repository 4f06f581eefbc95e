"""From the launcher's file to an armed agent. Standard library only: torch is not imported before the user does it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.process.record import process_record
from rankscope.rank_identity import Identity, told, was_told
from rankscope.records.codec import from_json, to_json
from rankscope.records.spec import AgentSpec
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import ENV_TOLD, Spool

__all__ = ["arm", "is_rank"]


def is_rank(environ: Mapping[str, str]) -> bool:
    """Whether this process was started as a rank for certain: torchrun's variables changed on the way from rankscope to
    here, or a launcher has started several processes on this node, one for each rank. A single one may be the launcher
    of a node, such as torchrun under srun."""
    found = told(environ)
    if found is None or found.world_size is None:
        return False
    changed = found.launcher == "torchrun" and was_told(found) != environ.get(ENV_TOLD, "")
    return changed or (found.local_world_size or 0) > 1


def arm(spec_path: str, *, certain: bool) -> None:
    """Read the spec and wait for the user's ``import torch``. A process that never imports it is left alone.

    Args:
        spec_path: the file that the launcher has written.
        certain: see :func:`is_rank`. Else the processes below this one may be the ranks as well as it.
    """
    spec = from_json(AgentSpec, Path(spec_path).read_text(encoding="utf-8"))
    parent = os.getpid()

    def attach() -> None:
        # A child forked before torch was imported inherits the hook. Of a rank it is no training process.
        if certain and os.getpid() != parent:
            return
        try:
            from rankscope.agent.session import Session

            Session.begin(spec, certain=certain)
        except Exception as error:  # a torch that is too old or too new, a spool that is full
            found = told(os.environ)
            if certain and found is not None:
                with contextlib.suppress(Exception):  # then the report misses this rank and cannot say why
                    _report_failure(spec, found, error)

    after_import("torch", attach)


def _report_failure(spec: AgentSpec, found: Identity, error: Exception) -> None:
    """Write into the record of this rank's process why there will be no other record of it."""
    reason = f"the agent did not start, the job went on without it: {error!r}"
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    life = process_record(found.rank, found.world_size or 1, found.local_rank, attempt, "missing", reason)
    replace_text(Spool(Path(spec.spool)).life(life.attempt, life.rank), to_json(life))
