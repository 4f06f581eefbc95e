"""The settings of a sweep, expanded from overrides in Hydra's grammar."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rankscope.compose import alternatives, compose
from rankscope.errors import ConfigError
from rankscope.records.secrets import mask_arguments, mask_config
from rankscope.records.sweep import SweepSetting

__all__ = ["MOST", "settings_of", "split"]

MOST = 10_000
"""Largest number of settings of a sweep; more indicate a mistake in a range."""


def split(overrides: Sequence[str], config_dirs: Sequence[Any] = ()) -> tuple[list[str], list[list[str]]]:
    """Separate the overrides with one value, which all runs share, from those with several, which are swept.

    Args:
        overrides: in Hydra's grammar, with ``a,b``, ``choice()``, ``range()`` and ``glob()``.
        config_dirs: the user's folders with configuration groups.

    Returns:
        The shared overrides; and for each swept override one override per value.

    Raises:
        ConfigError: an argument is no override, or has infinitely many values.
    """
    found = alternatives(overrides, config_dirs)
    return [one for one, *others in found if not others], [choices for choices in found if len(choices) > 1]


def settings_of(overrides: Sequence[str], config_dirs: Sequence[Any] = ()) -> list[SweepSetting]:
    """Return all combinations of the swept values; the last override changes fastest.

    Raises:
        ConfigError: a combination is not a valid configuration, or there are more than :data:`MOST`.
    """
    fixed, swept = split(overrides, config_dirs)
    if any(word.lstrip("+").startswith("run.dir=") for word in overrides):
        raise ConfigError("run.dir is set by the sweep, which gives each run its own; name the sweep's with --dir")
    found = []
    for number, chosen in enumerate(itertools.product(*swept), start=1):
        if number > MOST:
            raise ConfigError(f"the sweep has more than {MOST:,} settings; sweep over fewer values")
        config = compose([*fixed, *chosen], config_dirs).config
        knobs = {name: str(value) for name, value in _flat(mask_config({**config.script, **config.env}), "")}
        name = _name(mask_arguments(chosen))
        found.append(SweepSetting(number=number, name=name, overrides=[*chosen], knobs=knobs))
    return found


def _name(chosen: Iterable[str]) -> str:
    short = [word.lstrip("+").removeprefix("script.").removeprefix("env.") for word in chosen]
    return " ".join(word.removeprefix("experiment=") for word in short) or "as given"


def _flat(values: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
