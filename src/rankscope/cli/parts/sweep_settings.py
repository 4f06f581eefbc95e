"""What a sweep tries: the settings that overrides in Hydra's grammar stand for."""

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
"""Settings of a sweep; more are a mistake in a range."""


def split(overrides: Sequence[str], config_dirs: Sequence[Any] = ()) -> tuple[list[str], list[list[str]]]:
    """Take what is the same in all runs apart from what is swept.

    Args:
        overrides: in Hydra's grammar, with ``a,b``, ``choice()``, ``range()`` and ``glob()``.
        config_dirs: the user's folders of groups.

    Returns:
        Overrides of all runs, and of each thing that is swept its overrides.

    Raises:
        ConfigError: what is no override, or has no end of values.
    """
    found = alternatives(overrides, config_dirs)
    return [one for one, *others in found if not others], [choices for choices in found if len(choices) > 1]


def settings_of(overrides: Sequence[str], config_dirs: Sequence[Any] = ()) -> list[SweepSetting]:
    """All combinations; the last thing that is swept changes fastest.

    Raises:
        ConfigError: a combination that rankscope would not run with.
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
