"""TensorBoard: scalars of the first writer that the script has made and not closed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from rankscope.agent.process.import_hooks import after_import
from rankscope.agent.signals.base import after
from rankscope.agent.trackers.base import Log, Tracker

__all__ = ["TRACKER"]

_writers: list[weakref.ref[Any]] = []


def _watch() -> None:
    after_import("torch.utils.tensorboard.writer", _patch)


def _patch() -> None:
    from torch.utils.tensorboard import writer

    after(writer.SummaryWriter, "__init__", lambda made: _writers.append(weakref.ref(made)))


def _opened() -> Log | None:
    for made in _writers:
        writer = made()
        if getattr(writer, "file_writer", None) is not None:  # closed ones have none
            return _logs_into(writer)
    return None


def _logs_into(writer: Any) -> Log:
    def log(numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    return log


TRACKER = Tracker("tensorboard", _opened, _watch)
