"""How the launcher process has to end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from dataclasses import dataclass

__all__ = ["Ending"]


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of the job, as its caller would have seen it."""

    exit_code: int
    signal: int | None = None
    """The signal that stopped the job, when one did."""
    by_signal: bool = False
    """The command itself would die of that signal rather than exit with a code."""

    def leave(self) -> None:
        """Die of the signal where the command would have; returns otherwise."""
        if self.by_signal and self.signal is not None:
            with contextlib.suppress(OSError, ValueError):  # the command has left its core; ours would replace it
                resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            with contextlib.suppress(OSError):  # SIGKILL has no handler to be set
                signal.signal(self.signal, signal.SIG_DFL)
            os.kill(os.getpid(), self.signal)
