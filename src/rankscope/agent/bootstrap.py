"""From the launcher's file to an armed agent. Standard library only: torch is not imported before the user does it."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.agent.process.import_hooks import after_import, before_import
from rankscope.records.codec import from_json
from rankscope.records.spec import AgentSpec

__all__ = ["arm"]

_DAEMON = "KINETO_USE_DAEMON"


def arm(spec_path: str) -> None:
    """Read the spec and wait for the user's ``import torch``. A process that never imports it is left alone."""
    spec = from_json(AgentSpec, Path(spec_path).read_text(encoding="utf-8"))
    parent = os.getpid()
    armed = _let_kineto_ask(spec)

    def attach() -> None:
        # A child forked before torch was imported inherits the hook, but it is not the training process.
        if os.getpid() != parent:
            return
        from rankscope.agent.session import Session

        Session.begin(spec, armed=armed)

    after_import("torch", attach)


def _let_kineto_ask(spec: AgentSpec) -> bool:
    """Let libkineto poll. That it shall is said early in the import of torch and then taken back, so that
    torch.profiler does not count optimizer steps for it, and children do not poll too; where, it reads again at each
    poll, so this stays and means nothing to anyone else. False where the user has a daemon of his own."""
    if spec.kineto_socket is None or _DAEMON in os.environ:
        return False
    os.environ.update({"KINETO_IPC_SOCKET_DIR": spec.kineto_socket, "KINETO_ONDEMAND_TRACE_DIR": spec.spool})
    # Silent: it would tell of its registration on every rank's stderr.
    ours = {_DAEMON: "1", "KINETO_DAEMON_INIT_DELAY_S": "0", "KINETO_LOG_LEVEL": "6"}
    added = {key: value for key, value in ours.items() if key not in os.environ}
    os.environ.update(added)

    def withdraw() -> None:
        for key in added:
            os.environ.pop(key, None)

    before_import("torch.profiler", withdraw)
    return True
