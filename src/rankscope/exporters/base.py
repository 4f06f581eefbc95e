"""The record of an exporter, and what all exporters share."""

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
    """One tool to which the numbers of a report can be exported."""

    name: str
    place: str
    """Description of the destination, for the help."""
    write: Callable[[Report, str, int], str]
    """Writes the numbers. Takes the report, the destination, and the training step under which the numbers are stored;
    returns a message that names what was written.

    Raises:
        ConfigError: a package is not installed; the message says which.
        OSError: the destination cannot be written.
    """


def needed(module: str, extra: str) -> Any:
    """Import a package that only an exporter needs.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"--to {extra} takes a package that is not installed ({error}); "
                          f"pip install 'rankscope[{extra}]'") from error  # fmt: skip


def run_name(report: Report) -> str:
    """Return the name under which the run is exported."""
    return str(report.record.run.run_id or "traces")
