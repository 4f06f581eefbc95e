"""``rankscope completion``."""

from __future__ import annotations

import argparse

from rankscope.cli.parts.arguments import Verbs

__all__ = ["add_completion", "completion_verb"]


def add_completion(verbs: Verbs) -> None:
    """Add the verb."""
    completion = verbs.add_parser("completion", help="print a script that completes words of the command in a shell")
    completion.add_argument(
        "shell",
        choices=("bash", "zsh", "fish", "tcsh"),
        help='for instance: eval "$(rankscope completion bash)"; rankscope completion fish | source',
    )
    completion.set_defaults(verb=completion_verb)


def completion_verb(arguments: argparse.Namespace) -> int:
    """Print the completion script for a shell, generated with the flags of the installed torchrun.

    Args:
        arguments: with the name of the shell, and the parser of all verbs, to whose ``run`` the flags of torchrun
            are added.
    """
    from rankscope.cli.parts.fish_completion import fish_script
    from rankscope.launcher.run.arguments import flags

    parser: argparse.ArgumentParser = arguments.parser
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    run = verbs.choices["run"]
    for action in flags():
        run._add_action(action)  # noqa: SLF001 - argparse has no public way to copy a flag
    if arguments.shell == "fish":
        print(fish_script(parser))
        return 0
    import shtab

    print(shtab.complete(parser, arguments.shell))
    return 0
