"""The script's own arguments, set from the configuration (``script.NAME=VALUE``), for experiments.

An argument that is on the command line already is replaced in place, in the same form, so that scripts of argparse
(``--lr 0.1``, ``--lr=0.1``) and of Hydra (``lr=0.1``) both work. A missing one is added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["with_settings"]

_NUMBER = re.compile(r"-\.?\d")
_ASSIGNED = re.compile(r"[\w.@+/-]+=")


def with_settings(words: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Set arguments of a script.

    Args:
        words: its command line.
        settings: name -> value; ``True`` is a flag without a value, ``False`` and None remove the argument, a list is
            several values, and a mapping is names with a dot.

    Returns:
        The new command line.
    """
    found = list(words)
    for name, value in _flat(settings, ""):
        found = _set(found, name, value)
    return found


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _set(words: list[str], name: str, value: Any) -> list[str]:
    for place, word in enumerate(words):
        if word == "--":
            break
        if word.startswith(f"{name}="):
            return [*words[:place], *_assigned(name, value), *words[place + 1 :]]
        flag, has_value, _ = word.partition("=")
        if not flag.startswith("-") or _plain(flag) != _plain(name):
            continue
        if has_value:
            return [*words[:place], *_assigned(flag, value), *words[place + 1 :]]
        end = place + 1
        if not isinstance(value, bool):  # a flag has no value; the next word is something else
            end = next((i for i in range(end, len(words)) if _is_flag(words[i])), len(words))
            end = end if isinstance(value, list) else min(end, place + 2)
        return [*words[:place], *_separate(flag, value), *words[end:]]
    end = words.index("--") if "--" in words else len(words)
    before = words[:end]
    if before and all(_ASSIGNED.match(word) and not word.startswith("-") for word in before):  # a script of Hydra
        return [*before, *_assigned(name, value), *words[end:]]
    added = _separate(f"--{name}", value)
    if len(added) == 2:
        added = ["=".join(added)]  # so that a value may begin with a dash
    return [*before, *added, *words[end:]]


def _assigned(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    text = f"[{','.join(map(_text, value))}]" if isinstance(value, list) else _text(value)
    return [f"{name}={text}"]


def _separate(flag: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    return [flag, *map(_text, value if isinstance(value, list) else [value])]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not _NUMBER.match(word)
