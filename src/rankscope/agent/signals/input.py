"""Items of ``DataLoader``; fetching them is timed as well. A step begins when it has received its item."""

from __future__ import annotations

import functools
import time
from typing import Any

import torch

from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.signals.base import Signal, Watch

__all__ = ["SIGNAL"]


def _install(watch: Watch) -> None:
    after_import("torch.utils.data.dataloader", lambda: _patch(watch))


def _patch(watch: Watch) -> None:
    from torch.utils.data import dataloader

    iterator: Any = dataloader._BaseDataLoaderIter  # noqa: SLF001 - base of all iterators
    original, clock = iterator.__next__, time.perf_counter_ns

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - the method's own name
        if not torch.compiler.is_compiling():
            watch.between()
        begun = clock()
        try:
            item = original(self)
        finally:
            watch.fetched(clock() - begun)
        if not torch.compiler.is_compiling():
            watch.signal("input")
        return item

    iterator.__next__ = __next__


SIGNAL = Signal("input", "items of a DataLoader", "likely", patience=True, install=_install)
