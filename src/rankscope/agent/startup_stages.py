"""Stage of a rank on the way to its first step, to explain why a job does not start.

A job that hangs before its first step usually hangs where its ranks first meet: in ``init_process_group``, which waits
until the last rank has called it. A rank that waits there has no thread yet that could answer a question, so it writes
its stage to the spool beforehand, a few characters.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from rankscope.agent.process.guard import guarded
from rankscope.records.running.hang import Stage
from rankscope.rundir.files import replace_text

__all__ = ["StartupStages"]


class StartupStages:
    """Writes the stage of one rank.

    Args:
        path: the file that its stage is written to.
        met: called when the process group has been created.
    """

    def __init__(self, path: Path, met: Callable[[], None]) -> None:
        self._path = path
        self._pid = os.getpid()
        self._met = guarded(met)

    def watch(self) -> None:
        """Write the first stage, and the others as they are reached."""
        self._note("began")
        if dist.is_available():
            self._watch_rendezvous()

    def _watch_rendezvous(self) -> None:
        from torch.distributed import distributed_c10d

        original = distributed_c10d.init_process_group

        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            self._note("rendezvous")
            result = original(*args, **kwargs)
            self._note("group")
            self._met()
            return result

        modules: list[Any] = [distributed_c10d, dist]
        for module in modules:
            if getattr(module, "init_process_group", None) is original:
                module.init_process_group = init_process_group

    def _note(self, stage: Stage) -> None:
        if os.getpid() == self._pid:  # a forked child does not have this rank
            with contextlib.suppress(OSError):  # on a full disk the stage stays unknown
                replace_text(self._path, f"{stage} {time.time_ns()}\n")
