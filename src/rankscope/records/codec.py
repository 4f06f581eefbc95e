"""Records to JSON and back. A reader ignores keys it does not know."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any, TypeVar

__all__ = ["SCHEMA_VERSION", "from_json", "to_json", "to_plain"]


SCHEMA_VERSION = "1.0"


T = TypeVar("T")


def to_plain(record: Any) -> Any:
    """Turn a record into dicts, lists and scalars."""
    return dataclasses.asdict(record)


def to_json(record: Any, *, indent: int | None = 1) -> str:
    """Serialise a record. NaN and infinities are refused: they are not JSON, and never a measurement."""
    return json.dumps(to_plain(record), indent=indent, ensure_ascii=False, allow_nan=False)


def from_json(cls: type[T], text: str | bytes) -> T:
    """Read a record of type ``cls``.

    Raises:
        ValueError: the text is not JSON, or a required field is missing.
    """
    plain = json.loads(text)
    try:
        return typing.cast(T, _build(cls, plain))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a {cls.__name__}: {error}") from error


def _build(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        known = {f.name for f in dataclasses.fields(hint)}
        return hint(**{key: _build(hints[key], item) for key, item in value.items() if key in known})
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in arguments if a is not type(None)]
        return None if value is None else _build(inner[0], value)
    if origin is list:
        return [_build(arguments[0], item) for item in value]
    if origin is dict:
        return {key: _build(arguments[1], item) for key, item in value.items()}
    return value
