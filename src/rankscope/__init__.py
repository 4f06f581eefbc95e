"""Why is a distributed PyTorch job slow, which rank does it, and what would fixing it gain?

Importing has no effects and needs nothing but the standard library. A training script may call :func:`step` where
its steps cannot be seen from outside; everything else is the command ``rankscope``.
"""

from __future__ import annotations

import sys

__all__ = ["__version__", "step"]

__version__ = "0.1.0"


def step() -> None:
    """Mark the end of a training step.

    Needed only when the automatic detection miscounts (``rankscope config`` and the report say which detector
    counts). From the first call on, these calls alone count. Does nothing outside ``rankscope run``.
    """
    agent = sys.modules.get("rankscope.agent.session")
    if agent is not None:
        agent.user_step()
