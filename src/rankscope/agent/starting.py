"""How far a rank is on its way to its first step, for whoever asks why the job does not begin.

A job that stands still before its first step does so where its ranks first meet: in ``init_process_group``, which waits
until the last of them has called it. A rank that waits there has no thread that could answer a question, so it notes
beforehand where it is going: a few characters in the spool.
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

__all__ = ["Starting"]


class Starting:
    """Of one rank.

    Args:
        path: where its stage is noted.
        met: called when the process group is there.
    """

    def __init__(self, path: Path, met: Callable[[], None]) -> None:
        self._path = path
        self._pid = os.getpid()
        self._met = guarded(met)

    def watch(self) -> None:
        """Note the first stage, and the others as they come."""
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
        if os.getpid() == self._pid:  # a forked child is no rank of this number
            with contextlib.suppress(OSError):  # a full disk, and one thing less to know
                replace_text(self._path, f"{stage} {time.time_ns()}\n")
