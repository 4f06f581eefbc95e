"""Documentation of the configuration keys, read from the docstrings of the fields, for the terminal and for docs/."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rankscope.config import ToolConfig

__all__ = ["Key", "as_markdown", "as_text", "groups", "keys"]


@dataclass(frozen=True)
class Key:
    """One configuration key."""

    name: str
    """Name as ``-S`` accepts it: ``schedule.active``."""
    default: str
    """Default value as YAML."""
    meaning: str
    """Meaning in whole sentences, in reStructuredText."""


@functools.cache
def keys() -> tuple[Key, ...]:
    """Return all keys in the order of the configuration.

    Raises:
        KeyError: a field has no docstring (a test checks that all have one).
    """
    return tuple(_keys(ToolConfig(), ""))


def groups() -> dict[str, str]:
    """Return group of keys -> its meaning."""
    return dict(_meanings(ToolConfig))


def as_text(key: Key, value: str | None = None) -> str:
    """Format a key, its value and its meaning for a terminal of 80 columns."""
    shown = f"{key.name}: {key.default if value is None else value}"
    if value is not None and value != key.default:
        shown += f"   (default: {key.default})"
    meaning = key.meaning.replace("``", "").replace(":mod:", "").replace(":data:", "")
    return f"{shown}\n" + textwrap.fill(meaning, 76, initial_indent="    ", subsequent_indent="    ")


def as_markdown() -> str:
    """Return the text of docs/configuration.md."""
    parts = [_HEAD]
    for group, about in groups().items():
        parts.append(f"\n## {group}\n\n{_inline(about)}\n")
        own = [key for key in keys() if key.name.startswith(f"{group}.")]
        if own:  # otherwise the user chooses the names below it
            parts.append("\n| key | default | meaning |\n| --- | --- | --- |\n")
            for key in own:
                meaning = _inline(key.meaning).replace("|", "\\|")
                parts.append(f"| `{key.name}` | `{key.default}` | {meaning} |\n")
    return "".join(parts)


_HEAD = """\
# Configuration

<!-- Made by docs/generate.py from the docstrings in rankscope/config.py and rankscope/records/spec.py. -->

Every key can be set before the script: `rankscope run -S schedule.active=3 -S budget.windows=5 train.py`. Values are
written in Hydra's grammar: `key=value`, `group=name` for another file of a group, `+group=name` for a file of your own.
`rankscope config --explain` prints this page, `rankscope config -S ...` what a set of overrides comes to.

`-S schedule=short`, `default` and `long` choose the steps; `-S capture=light`, `shapes` and `full` what is recorded of
them. A later `-S` wins over an earlier one.

## Files of your own

A folder that `--config-dir` names can hold a file for each experiment. Its first line puts its keys at the top, where
rankscope's own are, instead of below the name of its folder:

```yaml
# mine/experiment/slow.yaml
# @package _global_
schedule:
  active: 10
run:
  dir: /shared/runs/slow
```

```sh
rankscope run --config-dir mine -S +experiment=slow train.py
```
"""


def _keys(config: Any, prefix: str) -> Iterator[Key]:
    meanings = _meanings(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _keys(value, f"{prefix}{field.name}.")
        else:
            yield Key(f"{prefix}{field.name}", yaml(value), meanings[field.name])


def yaml(value: object) -> str:
    """Format a value as in YAML and ``-S``."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(map(yaml, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _meanings(kind: type) -> dict[str, str]:
    """Return field -> the docstring below it in the source, for a dataclass and its bases."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        statements = getattr(body, "body", [])
        for field, text in itertools.pairwise(statements):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found[field.target.id] = " ".join(text.value.value.split())
    return found


def _inline(text: str) -> str:
    """Replace the literals of reStructuredText by those of Markdown."""
    return text.replace("``", "`").replace(":mod:", "").replace(":data:", "")
