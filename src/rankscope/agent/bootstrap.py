"""From the launcher's file to an armed agent. Standard library only: torch is not imported before the user does it."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.agent.imports import after_import
from rankscope.model import AgentSpec, from_json

__all__ = ["arm"]


def arm(spec_path: str) -> None:
    """Read the spec and wait for the user's ``import torch``. A process that never imports it is left alone."""
    spec = from_json(AgentSpec, Path(spec_path).read_text(encoding="utf-8"))
    parent = os.getpid()

    def attach() -> None:
        # A child forked before torch was imported inherits the hook, but it is not the training process.
        if os.getpid() != parent:
            return
        from rankscope.agent.session import Session

        Session.begin(spec)

    after_import("torch", attach)
