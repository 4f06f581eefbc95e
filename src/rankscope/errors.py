"""Errors a user can act on. ``cli`` catches :class:`RankscopeError` once and prints it without a traceback."""

from __future__ import annotations

__all__ = ["AnalysisError", "ConfigError", "ForeignFileError", "RankscopeError", "RunDirError", "TraceError"]


class RankscopeError(Exception):
    """Something that the user can put right. The message says what, where, and how.

    ``exit_code`` is what the process ends with when the error is not handled.
    """

    exit_code = 1


class ConfigError(RankscopeError):
    """A flag or a configuration value that cannot be honoured."""

    exit_code = 2


class RunDirError(RankscopeError):
    """A run directory that cannot be used: taken, not a run, or not writable."""

    exit_code = 3


class TraceError(RankscopeError):
    """A file that cannot be used as a trace, with the reason."""

    exit_code = 4


class ForeignFileError(RankscopeError):
    """A file of another program that is not read: missing, not a regular file, too long, or damaged."""

    exit_code = 4


class AnalysisError(RankscopeError):
    """No analysis is possible, for instance because no rank left a usable trace."""

    exit_code = 5
