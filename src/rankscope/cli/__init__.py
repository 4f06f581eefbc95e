"""The verbs of the command line and their exit codes. Output that a user asked for is printed here only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.cli.parser import make_parser
from rankscope.cli.parts.console import say
from rankscope.cli.parts.signals import unwound_by_signals
from rankscope.cli.verbs.jobs.exec import execute
from rankscope.cli.verbs.jobs.run import run
from rankscope.cli.verbs.jobs.sweep import sweep
from rankscope.errors import RankscopeError, RunDirError
from rankscope.records.secrets import mask_text

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code; a :class:`RankscopeError` becomes one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["run"]:  # argparse would parse torchrun's flags as its own
            return run(words[1:])
        if words[:1] == ["exec"]:  # likewise the flags of the command
            return execute(words[1:])
        if words[:1] == ["sweep"]:  # its own flags are followed by those of `run`
            return sweep(words[1:])
        arguments = make_parser().parse_args(words)
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        with unwound_by_signals():
            return verb(arguments)
    except RankscopeError as error:
        say(f"error: {mask_text(str(error))}")
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # otherwise Python reports an error of stdout at exit
        return 1
    except OSError:
        if _has_current_folder():
            raise
        say("error: the current folder was removed; change into another one")
        return RunDirError.exit_code


def _has_current_folder() -> bool:
    try:
        return bool(Path.cwd())
    except OSError:
        return False
