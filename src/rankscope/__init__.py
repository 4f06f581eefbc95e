"""Why is a distributed PyTorch job slow, which rank does it, and what would fixing it gain?

Importing has no effects and needs nothing but the standard library. A training script may call :func:`step` where
its steps cannot be seen from outside. A notebook calls :func:`analyze`, :func:`load` and :func:`read_report`, which are
loaded when they are first used. Everything else is the command ``rankscope``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope.api import Report, analyze, load, load_traces, read_manifest, read_report

__all__ = ["Report", "__version__", "analyze", "load", "load_traces", "read_manifest", "read_report", "step"]

__version__ = "0.1.0"


def step() -> None:
    """Mark the end of a training step.

    Needed only when the automatic detection miscounts (``rankscope config`` and the report say which detector
    counts). From the first call on, these calls alone count. Does nothing outside ``rankscope run``.
    """
    agent = sys.modules.get("rankscope.agent.session")
    if agent is not None:
        agent.user_step()


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("rankscope.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
