"""``rankscope config``: show what would be recorded, and explain keys."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from difflib import get_close_matches
from operator import attrgetter
from typing import TYPE_CHECKING

from rankscope.cli.parts.arguments import Verbs, add_settings
from rankscope.errors import ConfigError

if TYPE_CHECKING:
    from rankscope.config import ToolConfig

__all__ = ["add_config", "config_verb"]


def add_config(verbs: Verbs) -> None:
    """Add the verb."""
    config = verbs.add_parser("config", help="show the configuration and what it will record")
    add_settings(config)
    config.add_argument(
        "--explain",
        metavar="KEY",
        nargs="?",
        const="",
        help="what a key means, or all keys of a group, or all; with its value and its default",
    )
    config.set_defaults(verb=config_verb)


def config_verb(arguments: argparse.Namespace) -> int:
    """Print the composed configuration and what it records, or the meaning of its keys."""
    from rankscope.compose import compose
    from rankscope.config_summary import plan_in_words

    composed = compose(arguments.overrides, arguments.config_dirs)
    if arguments.explain is not None:
        print("\n\n".join(_explained(arguments.explain, composed.config)))
        return 0
    print(composed.yaml)
    for line in plan_in_words(composed.config):
        print(f"# {line}")
    return 0


def _explained(name: str, config: ToolConfig) -> Iterator[str]:
    """Yield value and meaning of each key that ``name`` selects: a key, a group, or empty for all."""
    from rankscope.cli.parts.config_help import as_text, groups, keys, yaml

    selected = [key for key in keys() if not name or key.name == name or key.name.startswith(f"{name}.")]
    if not selected:
        near = get_close_matches(name, [*groups(), *(key.name for key in keys())], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "`rankscope config --explain` lists all"
        raise ConfigError(f"there is no configuration key or group {name!r}; {hint}")
    for key in selected:
        yield as_text(key, yaml(attrgetter(key.name)(config)))
