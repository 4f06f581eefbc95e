"""Nothing of ours may raise into the user's code."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["guarded", "tell"]


def tell(message: str) -> None:
    """One line on stderr. Even a closed stderr must not hurt the job."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"rankscope: {message}\n")


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap our side of a hook: an error is told once, and this hook does nothing from then on."""
    broken = False

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> None:
        nonlocal broken
        if broken:
            return
        try:
            function(*args, **kwargs)
        except Exception as error:  # this is the promise
            broken = True
            tell(f"{function.__qualname__} failed and is switched off; training goes on: {error!r}")

    return call
