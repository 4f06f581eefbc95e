"""Who works on the files of many ranks: what verbs share."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rankscope.errors import ConfigError

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["add_engine", "engine_of"]


def add_engine(verb: argparse.ArgumentParser) -> None:
    """Add the arguments, and to the end of the help a line for each engine."""
    from rankscope.engines.table import ENGINES

    verb.epilog = "engines:\n" + "\n".join(f"  {engine.name:7} {engine.about}" for engine in ENGINES)
    verb.formatter_class = argparse.RawDescriptionHelpFormatter
    verb.add_argument("--engine", choices=[e.name for e in ENGINES], default="local", help="who works (see below)")
    verb.add_argument("--address", metavar="WHERE", default="", help="of the engine's scheduler, or a file with it")
    verb.add_argument("--workers", type=int, metavar="N", help="processes (default: the engine's own choice)")


def engine_of(arguments: argparse.Namespace, *, here: bool) -> AbstractContextManager[Executor | None]:
    """The engine that was chosen, as a context; None in it where this process works, alone or with its own helpers.

    Args:
        arguments: with those of :func:`add_engine`.
        here: what is the same with the local engine is done without one.

    Raises:
        ConfigError: it is not there, or a number makes no sense.
    """
    from rankscope.engines.table import BY_NAME

    if arguments.workers is not None and arguments.workers < 1:
        raise ConfigError(f"--workers {arguments.workers}: one process at least has to work")
    if here and not (arguments.address and arguments.engine == "local"):
        return nullcontext()
    return BY_NAME[arguments.engine].open(arguments.address, arguments.workers)
