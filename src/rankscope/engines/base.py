"""The record of an engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rankscope.errors import ConfigError

__all__ = ["Engine", "missing_package"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """One way to run work in other processes, here or on other machines."""

    name: str
    about: str
    """Description in one line, for ``--help``."""
    open: Callable[[str, int | None], AbstractContextManager[Executor]]
    """Starts the engine, with an address (empty: its default) and the number of workers (None: its own choice). It
    raises :class:`~rankscope.errors.ConfigError` if the engine is not available."""


def missing_package(engine: str, package: str, extra: str) -> ConfigError:
    """Return the error for an engine whose package is not installed."""
    return ConfigError(
        f"--engine {engine} needs the package {package}, which is not installed here; "
        f"pip install 'rankscope[{extra}]', on every machine that works, or leave --engine out"
    )
