"""Swallow and log errors: rankscope may neither raise into the user's code nor write into the job's own files.

Descriptors 0 to 2 of a rank belong to the job: they can be closed, or be files that the job has opened. So messages are
kept, and reach the report through the record of the rank's process.
"""

from __future__ import annotations

import functools

TYPE_CHECKING = False  # typing takes longer to import than this package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["guarded", "keep_message", "kept_messages"]

_kept: list[str] = []
_MOST = 20


def keep_message(message: str) -> None:
    """Keep a message for the report. Only the first ones are kept."""
    if message not in _kept and len(_kept) < _MOST:
        _kept.append(message)


def kept_messages() -> list[str]:
    """Return the messages of this process so far."""
    return list(_kept)


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap the rankscope part of a hook: an error is reported once, and this hook does nothing from then on."""
    broken = False

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        nonlocal broken
        if broken:
            return
        try:
            function(*args, **kwargs)
        except Exception as error:  # no error of rankscope may reach the job
            broken = True
            why = f"{type(error).__name__}: {error}"
            name = getattr(function, "__qualname__", repr(function))
            keep_message(f"{name} failed and is switched off; training goes on: {why}")

    return call
