"""Interpret a word on the command line, or an argument of the Python API, as a run."""

from __future__ import annotations

from pathlib import Path

from rankscope.compare.baselines import PREFIX, Store, default_store
from rankscope.compare.sides.side import Say, Side, read_side

__all__ = ["open_side"]


def open_side(source: str | Path, store: str | None = None, say: Say | None = None) -> Side:
    """Open a run directory, a folder of traces, a ``report.json``, or ``baseline:NAME``.

    Args:
        source: one of these.
        store: location of baselines; default: RANKSCOPE_BASELINES, or ``rankscope_baselines``.
        say: called with a line of text when an action takes long.
    """
    if isinstance(source, str) and source.startswith(PREFIX):
        return Store(store or default_store()).side(source.removeprefix(PREFIX))
    return read_side(Path(source), say)
