"""Compose a :class:`~rankscope.config.ToolConfig` from overrides. The only importer of hydra and omegaconf.

Hydra's Compose API is used, because ``@hydra.main`` would reject torchrun's flags, change logging and create
directories. Composing writes no file, does not touch logging, and restores Hydra's global state.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, cast

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from rankscope.config import ToolConfig
from rankscope.errors import ConfigError

__all__ = ["Composed", "alternatives", "compose"]

_FREE = ("script.", "env.")
"""Prefixes of keys whose names the user chooses; such a key does not exist before it is set."""
_FEW = 12
"""Largest number of known names that a message lists."""
_CONF = Path(str(resources.files("rankscope.conf"))).resolve()


@dataclass(frozen=True, slots=True)
class Composed:
    """The configuration in three forms: typed for the program, plain for the manifest, YAML for people."""

    config: ToolConfig
    plain: dict[str, Any]
    yaml: str


def compose(overrides: Sequence[str], config_dirs: Sequence[Path] = ()) -> Composed:
    """Compose the built-in groups and the user's with Hydra overrides, in the order given.

    Args:
        overrides: in Hydra's grammar: ``key=value``, ``group=name``, ``+group=name``.
        config_dirs: the user's folders. They add groups and files, and cannot replace a built-in file.

    Raises:
        ConfigError: a folder, key, group or value does not exist, or a value is out of its limits.
        OSError: the current folder was removed.
    """
    for word in overrides:
        if not re.match(r"~|[^\s=]+=", word):
            raise ConfigError(f"-S {word!r} sets nothing; write a key and its value without spaces: schedule.active=4")
    asked = [*(f"++{word}" if word.startswith(_FREE) else word for word in overrides), *_search(config_dirs)]
    with initialize_config_dir(config_dir=str(_CONF), version_base="1.3"), warnings.catch_warnings():
        # Hydra only warns if a search path does not exist; here that is an error.
        warnings.filterwarnings("error", message=".*is not available", category=UserWarning)
        try:
            composed = hydra_compose("config", overrides=asked)
            merged = OmegaConf.merge(OmegaConf.structured(ToolConfig), composed)
            config = cast(ToolConfig, OmegaConf.to_object(merged))
        except ConfigError:
            raise
        except (HydraException, OmegaConfBaseException, UserWarning, TypeError) as error:
            raise ConfigError(_explain(error, config_dirs)) from error
        except (YAMLError, OSError, UnicodeDecodeError) as error:
            if not config_dirs and isinstance(error, OSError):  # no mistake of the user's, so a job runs all the same
                raise OSError(f"Hydra asks for the current folder: {error.strerror}") from error
            raise ConfigError(f"a file of --config-dir cannot be read: {' '.join(str(error).split())}") from error
        return Composed(
            config=config,
            plain=cast("dict[str, Any]", OmegaConf.to_container(merged, resolve=True)),
            yaml=OmegaConf.to_yaml(merged, resolve=True),
        )


def alternatives(overrides: Sequence[str], config_dirs: Sequence[Path] = ()) -> list[list[str]]:
    """Expand the overrides of a sweep, by the grammar of Hydra's own sweeps.

    Args:
        overrides: as in :func:`compose`, also with ``key=a,b``, ``choice()``, ``range()`` and, for groups, ``glob()``.
        config_dirs: the user's folders.

    Returns:
        For each override the overrides with single values that it expands to.

    Raises:
        ConfigError: a text is no override, has infinitely many values (``interval()``), or no value.
    """
    with initialize_config_dir(config_dir=str(_CONF), version_base="1.3"):
        loader = _Groups(GlobalHydra.instance().config_loader(), _search(config_dirs))
        try:
            parsed = OverridesParser.create(config_loader=cast(Any, loader)).parse_overrides(list(overrides))
            return [_values(override) for override in parsed]
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise ConfigError(_explain(error, config_dirs)) from error


def _values(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line} has no end of values; use range(), choice() or a,b")
    found = [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
    if not found:
        raise ConfigError(f"{override.input_line} stands for no value")
    return found


class _Groups:
    """Interface by which Hydra's parser resolves ``glob()``: lists the files of a group, built-in and the user's."""

    def __init__(self, loader: Any, search: list[str]) -> None:
        self._loader, self._search = loader, search

    def get_group_options(self, group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        if group_name.startswith(_FREE):
            raise ConfigError(f"glob() finds files of a group, and {group_name} is none; use a,b or range()")
        options = self._loader.get_group_options(group_name, results_filter, "config", self._search)
        return [str(option) for option in options]


def _search(config_dirs: Sequence[Path]) -> list[str]:
    missing = [str(folder) for folder in config_dirs if not folder.is_dir()]
    if missing:
        raise ConfigError(f"--config-dir {missing[0]} is not a folder; name one that holds groups of YAML files")
    # Not as_uri(), because Hydra does not decode percent-encoded characters.
    found = [f"'file://{_quoted(str(folder.resolve()))}'" for folder in config_dirs]
    return [f"hydra.searchpath=[{','.join(found)}]"] if found else []


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _explain(error: Exception, config_dirs: Sequence[Path]) -> str:
    """Return a message of one or two lines: what Hydra could not resolve, and the nearest known names."""
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).removesuffix(".yaml").rpartition("/")
        options = [str(option) for option in error.options or _options(group)]
        if not options:
            return f"there is no config group {group!r}{_near(group, _groups())}"
        return f"the group {group} has no {name!r}{_near(name, options)}"
    unknown = re.search(r"full_key: (\S+)", f"{text}\n{error.__cause__}")
    if unknown and re.search(r"not in|override|merge", text):
        key = unknown[1]
        if any((folder / key).is_dir() for folder in config_dirs):
            return f"a file of the folder {key!r} sets keys below that name; begin it with the line # @package _global_"
        if key not in _keys():
            return f"there is no configuration key {key!r}{_near(key, [*_keys(), *_groups()])}"
    if absent := re.match(r"Could not override '(\w+)'\.\s+No match in the defaults list", text):
        return f"no file of the group {absent[1]} is used by default; write +{absent[1]}=NAME"
    # Further lines hold advice for Hydra's own command line, and its internal types.
    noise = re.compile(r"See https|\s+(object|reference)_type|\d\.")
    lines = [line.strip() for line in text.splitlines() if line and not noise.match(line)]
    where = unknown[1] + ": " if unknown else ""
    if wrong := re.search(r"Value '(.*)' of type '\w+' could not be converted to (\w+)", text):
        wanted = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}
        return f"{where}{wrong[1]!r} is not {wanted.get(wrong[2], wrong[2])}"
    words = "; ".join(line for line in lines if not line.startswith("full_key:"))
    return f"{where}{words} (-S takes a key or a group with its value; put odd values in quotes)"


def _near(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    if not near:
        near = [item for item in known if item.rpartition(".")[2] == name.rpartition(".")[2]]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; known are {', '.join(known)}" if len(known) <= _FEW else "; `rankscope config --explain` lists all keys"


def _keys() -> list[str]:
    def walk(cls: type, prefix: str) -> Iterator[str]:
        for item in dataclasses.fields(cls):
            inner = item.default_factory
            if dataclasses.is_dataclass(inner) and isinstance(inner, type):
                yield from walk(inner, f"{prefix}{item.name}.")
            else:
                yield f"{prefix}{item.name}"

    return list(walk(ToolConfig, ""))


def _groups() -> list[str]:
    return _options("", ObjectType.GROUP, leave_out="hydra")


def _options(group: str, kind: ObjectType = ObjectType.CONFIG, leave_out: str = "") -> list[str]:
    hydra = GlobalHydra.instance().hydra
    names = hydra.config_loader.get_group_options(group, kind) if hydra else []
    return [str(name) for name in names if name != leave_out]
