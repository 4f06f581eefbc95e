"""Exit of the launcher process, which must look as if the job had been started without rankscope."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from dataclasses import dataclass

__all__ = ["Ending"]


@dataclass(frozen=True, slots=True)
class Ending:
    """End of the job, as its caller would have seen it without rankscope."""

    exit_code: int
    signal: int | None = None
    """The signal that stopped the job, if any."""
    by_signal: bool = False
    """Whether the command itself would die of that signal instead of exiting with a code."""

    def leave(self) -> None:
        """Die of the signal if the command would have; else return."""
        if self.by_signal and self.signal is not None:
            # the command has written its core file, which ours would replace
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            with contextlib.suppress(OSError):  # SIGKILL has no handler to be reset
                signal.signal(self.signal, signal.SIG_DFL)
            os.kill(os.getpid(), self.signal)
