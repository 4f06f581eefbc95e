"""``rankscope completion``."""

from __future__ import annotations

import argparse

__all__ = ["completion_verb"]


def completion_verb(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Print the script for a shell. It is made on request, with the flags of the installed torchrun.

    Args:
        arguments: with the name of the shell.
        parser: of all verbs; the flags of torchrun are added to its ``run``.
    """
    import shtab

    from rankscope.launcher.run.arguments import flags

    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    run = verbs.choices["run"]
    for action in flags():
        run._add_action(action)  # noqa: SLF001 - argparse has no public way to copy a flag
    print(shtab.complete(parser, arguments.shell))
    return 0
