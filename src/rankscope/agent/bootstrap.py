"""From the launcher's file to an armed agent. Standard library only: torch is not imported before the user does it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.process.record import process_record
from rankscope.records.codec import from_json, to_json
from rankscope.records.spec import AgentSpec
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["arm"]


def arm(spec_path: str) -> None:
    """Read the spec and wait for the user's ``import torch``. A process that never imports it is left alone."""
    spec = from_json(AgentSpec, Path(spec_path).read_text(encoding="utf-8"))
    parent = os.getpid()

    def attach() -> None:
        # A child forked before torch was imported inherits the hook, but it is not the training process.
        if os.getpid() != parent:
            return
        try:
            from rankscope.agent.session import Session

            Session.begin(spec)
        except Exception as error:  # a torch that is too old or too new, a spool that is full
            with contextlib.suppress(Exception):  # then the report misses this rank and cannot say why
                _report_failure(spec, error)

    after_import("torch", attach)


def _report_failure(spec: AgentSpec, error: Exception) -> None:
    """Write into the record of this rank's process why there will be no other record of it."""
    reason = f"the agent did not start, the job went on without it: {error!r}"
    life = process_record(os.environ, "missing", reason)
    replace_text(Spool(Path(spec.spool)).life(life.attempt, life.rank), to_json(life))
