"""``rankscope completion``."""

from __future__ import annotations

import argparse

__all__ = ["completion_verb"]


def completion_verb(arguments: argparse.Namespace) -> int:
    """Print the script for a shell. It is made when asked for, with the flags of the torchrun that is installed."""
    import shtab

    from rankscope.cli.parser import make_parser
    from rankscope.launcher.arguments import flags

    parser = make_parser()
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    run = verbs.choices["run"]
    for action in flags():
        run._add_action(action)  # noqa: SLF001 - argparse has no public way to copy a flag
    print(shtab.complete(parser, arguments.shell))
    return 0
