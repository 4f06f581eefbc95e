"""What an exporter is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rankscope.errors import ConfigError
from rankscope.report.notebook import Report

__all__ = ["Exporter", "needed", "run_name"]


@dataclass(frozen=True, slots=True)
class Exporter:
    """One place that numbers can go to."""

    name: str
    place: str
    """What the destination is, for the help."""
    write: Callable[[Report, str, int], str]
    """Gets the report, the destination, and the training step to file the numbers under; says what it has written.

    Raises:
        ConfigError: a package is not installed; the message says which.
        OSError: the destination cannot be written.
    """


def needed(module: str, extra: str) -> Any:
    """Import a package that only an exporter needs.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"--to {extra} takes a package that is not installed ({error}); "
                          f"pip install 'rankscope[{extra}]'") from error  # fmt: skip


def run_name(report: Report) -> str:
    """How the run is called there."""
    return str(report.record.run.run_id or "traces")
