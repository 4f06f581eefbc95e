"""Stages of one window's analysis, each of which may fail separately."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["Failed", "Stages"]

T = TypeVar("T")
Failed = Callable[[str, Exception], None]


class Stages:
    """Runs the stages. A failure is reported, and a neutral result is used instead."""

    def __init__(self, failed: Failed | None) -> None:
        self._failed = failed

    def run(self, where: str, work: Callable[[], T], instead: Callable[[], T]) -> T:
        """Return the result of ``work``, or of ``instead`` if it raises; without a callback, raise the error."""
        if self._failed is None:
            return work()
        try:
            return work()
        except Exception as error:
            self._failed(where, error)
            return instead()
