"""Flags that select the engine (local processes, Dask, MPI) which processes the files of many ranks."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rankscope.errors import ConfigError

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["add_engine", "engine_of"]


def add_engine(verb: argparse.ArgumentParser) -> None:
    """Add the flags, and a line for each engine to the end of the help."""
    from rankscope.engines.table import ENGINES

    verb.epilog = "engines:\n" + "\n".join(f"  {engine.name:7} {engine.about}" for engine in ENGINES)
    verb.formatter_class = argparse.RawDescriptionHelpFormatter
    verb.add_argument("--engine", choices=[e.name for e in ENGINES], default="local", help="who works (see below)")
    verb.add_argument("--address", metavar="WHERE", default="", help="of the engine's scheduler, or a file with it")
    verb.add_argument("--workers", type=int, metavar="N", help="processes (default: the engine's own choice)")


def engine_of(arguments: argparse.Namespace, *, here: bool) -> AbstractContextManager[Executor | None]:
    """Return a context that starts the selected engine and yields its executor.

    Args:
        arguments: parsed arguments, with those of :func:`add_engine`.
        here: yield None instead of an executor; the caller does the work itself.

    Raises:
        ConfigError: the engine is not available, or ``--workers`` is below 1.
    """
    from rankscope.engines.table import BY_NAME

    if arguments.workers is not None and arguments.workers < 1:
        raise ConfigError(f"--workers {arguments.workers}: one process at least has to work")
    if here and not (arguments.address and arguments.engine == "local"):
        return nullcontext()
    return BY_NAME[arguments.engine].open(arguments.address, arguments.workers)
