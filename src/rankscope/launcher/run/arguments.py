"""torchrun's own parser with two flags of rankscope added, and the split at the script that torchrun lacks.

argparse classifies every word of a command line before it sets any value, including those behind the script, so
torchrun rejects ``train.py --start 5`` ("ambiguous option"). Here the parser is tried on growing prefixes: the first
one that it accepts ends with the script, whatever abbreviations, attached values or PET_* variables were used before.
The rest belongs to the script, and the parser gets placeholders for it.
"""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from torch.distributed.run import get_args_parser

from rankscope.errors import ConfigError

__all__ = ["HelpAsked", "RunArguments", "flags", "help_text", "parse", "split_at_script"]

_OVERRIDES, _CONFIG_DIRS = "rankscope_overrides", "rankscope_config_dirs"


@dataclass(frozen=True, slots=True)
class RunArguments:
    """A parsed command line of ``rankscope run``."""

    torchrun: Namespace
    """Exactly the result of torchrun's own ``parse_args``."""
    overrides: list[str]
    """Hydra overrides from ``-S``, in order."""
    config_dirs: list[Path]
    """The user's own configuration folders."""


class HelpAsked(Exception):  # noqa: N818  (not an error)
    """``-h`` was given before the script, or ``--help-torchrun``."""

    def __init__(self, *, torchrun: bool = False) -> None:
        super().__init__()
        self.torchrun = torchrun


class _Refused(Exception):  # noqa: N818
    """argparse's error for one prefix."""


class _Parser(ArgumentParser):
    """Raises instead of printing and exiting."""

    def error(self, message: str) -> NoReturn:
        raise _Refused(message)

    def print_help(self, file: object = None) -> NoReturn:  # noqa: ARG002
        raise HelpAsked


def parse(argv: Sequence[str]) -> RunArguments:
    """Parse the words after ``rankscope run``.

    Raises:
        ConfigError: what torchrun would have refused, in torchrun's words.
        HelpAsked: help was requested.
    """
    parser = _parser()
    found, length = _to_script(parser, argv)
    _give_rest(parser, found, argv[:length], argv[length:])
    overrides, config_dirs = found.__dict__.pop(_OVERRIDES), found.__dict__.pop(_CONFIG_DIRS)
    return RunArguments(torchrun=found, overrides=overrides, config_dirs=[Path(d) for d in config_dirs])


def split_at_script(argv: Sequence[str]) -> tuple[list[str], list[str], RunArguments]:
    """Split the words after ``rankscope run``: torchrun's flags, the script with its arguments, and the parsed flags.

    Raises:
        ConfigError: as of :func:`parse`.
        HelpAsked: help was requested.
    """
    _, length = _to_script(_parser(), argv)
    return list(argv[: length - 1]), list(argv[length - 1 :]), parse(argv)


def _to_script(parser: _Parser, argv: Sequence[str]) -> tuple[Namespace, int]:
    """Parse the words before the script; also return the number of words up to and including the script."""
    refusal = "the script to launch is missing"
    for length in range(1, len(argv) + 1):
        try:
            found, unknown = parser.parse_known_args(argv[:length])
        except _Refused as refused:
            refusal = str(refused)
            continue
        if unknown:
            raise ConfigError(f"unrecognized arguments: {' '.join(unknown)}; see rankscope run --help")
        return found, length
    raise ConfigError(f"{refusal}; see rankscope run --help")


def help_text(*, torchrun: bool = False) -> str:
    """Return our flags with examples; with ``torchrun`` its flags, too."""
    return _parser().format_help() if torchrun else _ours().format_help()


def flags() -> list[Action]:
    """Return the flags of ``rankscope run``, each as argparse stores it."""
    return [action for action in _parser()._actions if action.option_strings]  # noqa: SLF001 - no public name


class _HelpOfTorchrun(Action):
    """Shows all flags."""

    def __call__(self, *_: object) -> NoReturn:
        raise HelpAsked(torchrun=True)


_USAGE = "rankscope run [torchrun flags] [-S key=value ...] [--config-dir DIR] script.py [script arguments]"
_ABOUT = "Launch a script as torchrun does, record a few steps of every rank and report what slows it down."
_EXAMPLES = """\
torchrun's flags go before the script as ever (--nproc-per-node, --nnodes, --rdzv-endpoint ...).

examples:
  rankscope run --nproc-per-node 8 train.py --lr 1e-4
  rankscope run --nproc-per-node 8 -S schedule=short -S run.dir=runs/0001 train.py
  rankscope run --nnodes 4 --nproc-per-node 8 --rdzv-endpoint head:29500 --rdzv-id 7 -S run.dir=/shared/0002 train.py

The exit code is the job's.
"""


def _ours() -> ArgumentParser:
    parser = ArgumentParser(
        prog="rankscope run", usage=_USAGE, description=_ABOUT, epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )  # fmt: skip
    _add_ours(parser)
    return parser


def _parser() -> _Parser:
    parser = _Parser(
        prog="rankscope run",
        usage=_USAGE,
        description=_ABOUT,
        parents=[get_args_parser()],
        add_help=False,
        conflict_handler="resolve",
    )
    _add_ours(parser)
    return parser


def _add_ours(parser: ArgumentParser) -> None:
    ours = parser.add_argument_group("rankscope", "before the script; behind it every word belongs to the script")
    ours.add_argument(
        "-S",
        "--set",
        dest=_OVERRIDES,
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="Change the configuration, e.g. -S schedule=short -S schedule.active=3 -S run.dir=DIR. "
        "`rankscope config` shows all keys.",
    )
    ours.add_argument(
        "--config-dir",
        "--config_dir",
        dest=_CONFIG_DIRS,
        metavar="DIR",
        action="append",
        default=[],
        help="A folder with configuration groups of your own, e.g. DIR/experiment/mine.yaml for -S +experiment=mine.",
    )
    ours.add_argument(
        "--help-torchrun", nargs=0, action=_HelpOfTorchrun, dest=SUPPRESS, default=SUPPRESS,
        help="Show torchrun's flags, too, and exit.",
    )  # fmt: skip


def _give_rest(parser: _Parser, found: Namespace, head: Sequence[str], rest: Sequence[str]) -> None:
    """Set the script's arguments as argparse would; some Python versions drop a ``--`` right behind the script."""
    placeholders = [word if word == "--" else f"word{number}" for number, word in enumerate(rest)]
    kept = parser.parse_args([*head, *placeholders]).training_script_args
    words = dict(zip(placeholders, rest, strict=True))
    found.training_script_args = [words[placeholder] for placeholder in kept]
