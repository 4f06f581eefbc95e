"""Errors a user can act on. ``cli`` catches :class:`RankscopeError` once and prints it without a traceback."""

from __future__ import annotations

__all__ = ["AnalysisError", "ConfigError", "ForeignFileError", "RankscopeError", "RunDirError", "TraceError"]


class RankscopeError(Exception):
    """An error that the user can correct. The message says what is wrong, where, and how to correct it.

    ``exit_code`` is what the process ends with when the error is not handled.
    """

    exit_code = 1


class ConfigError(RankscopeError):
    """A flag or a configuration value is not valid."""

    exit_code = 2


class RunDirError(RankscopeError):
    """A run directory cannot be used: it belongs to another run, holds no run, or is not writable."""

    exit_code = 3


class TraceError(RankscopeError):
    """A file cannot be used as a trace."""

    exit_code = 4


class ForeignFileError(RankscopeError):
    """A file of another program cannot be read: it is missing, not a regular file, too long, or damaged."""

    exit_code = 4


class AnalysisError(RankscopeError):
    """No analysis is possible, for instance because no rank left a usable trace."""

    exit_code = 5
