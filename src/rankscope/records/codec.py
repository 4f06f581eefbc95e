"""Convert records to JSON and back. A reader ignores unknown keys, and rejects values of a wrong type or size."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from rankscope.limits import Between

__all__ = ["SCHEMA_VERSION", "decoded_bytes", "from_json", "to_json", "to_plain"]


SCHEMA_VERSION = "1.0"


T = TypeVar("T")
_Reader = Callable[[Any], Any]
_INT64 = Between(-(2**63), 2**63 - 1)
"""Default range of integers: what all readers of JSON, and numpy, can represent."""
_MOST_PER_BYTE = 10
_FREE_BYTES = 128 << 20
"""Memory in bytes up to which any text is decoded. A record takes 3 to 6 times its text in memory; only nested lists
take up to 30 times. Beyond this size, text that would take more than ``_MOST_PER_BYTE`` times its length is
rejected."""
_DEEPEST = 64
"""Largest nesting depth of values without a declared type (a configuration, HolisticTraceAnalysis' numbers), which need
four levels."""

_LARGEST = 1e100
"""Far above any measurement, and small enough that percentages, sums and squares of it stay finite."""


def to_plain(record: Any) -> Any:
    """Convert a record to dicts, lists and scalars."""
    return dataclasses.asdict(record)


def to_json(record: Any, *, indent: int | None = 1) -> str:
    """Serialise a record. NaN and infinities are rejected: they are not JSON, and never a measurement.

    Text that cannot be encoded (half a surrogate pair, as in the names of some files) becomes U+FFFD.
    """
    return _encodable(json.dumps(to_plain(record), indent=indent, ensure_ascii=False, allow_nan=False))


def from_json(cls: type[T], text: str | bytes) -> T:
    """Read a record of type ``cls`` and check it: types, finite numbers, ranges of :mod:`rankscope.limits`.

    Raises:
        ValueError: the text is not JSON, or not such a record; the message names the field.
    """
    needed = decoded_bytes(text)
    if needed > _FREE_BYTES and needed > _MOST_PER_BYTE * len(text):
        raise ValueError(f"not a {cls.__name__}: {len(text)} bytes of text hold more lists and objects than any does")
    hint: Any = cls
    try:
        return typing.cast(T, _reader(hint)(json.loads(text, parse_constant=_no_number, parse_float=_finite)))
    except RecursionError:
        raise ValueError(f"not a {cls.__name__}: nested too deeply") from None
    except (_WrongError, ValueError) as wrong:
        raise ValueError(f"not a {cls.__name__}: {wrong}") from None


def decoded_bytes(text: str | bytes) -> int:
    """Return a rough upper bound of the memory, in bytes, that the lists, objects and numbers of the text take once
    decoded."""
    if isinstance(text, str):
        return 232 * (text.count("{") + text.count("[")) + 32 * text.count(",")
    return 232 * (text.count(b"{") + text.count(b"[")) + 32 * text.count(b",")


class _WrongError(Exception):
    """A value that does not fit; its path is completed while the error propagates."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.where = ""

    def __str__(self) -> str:
        return f"{self.where.removeprefix('.')}: {self.what}" if self.where else self.what

    def under(self, place: str) -> _WrongError:
        self.where = place + self.where
        return self


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not abs(number) <= _LARGEST:
        raise ValueError(f"{text} is beyond the range of numbers")
    return number


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _told(value: Any) -> str:
    """Return a short form of any value, for a message."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."


@functools.cache
def _reader(hint: Any) -> _Reader:
    """Return the function that reads a value of this type, or raises :class:`_WrongError`."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _record_reader(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        bounds = next((a for a in arguments if isinstance(a, Between)), None)
        return _file_name if bounds is None else _int_reader(bounds)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (_reader(a) for a in arguments if a is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is Literal:
        return _choice_reader(arguments)
    if origin is list:
        return _list_reader(_reader(arguments[0]))
    if origin is dict:
        return _dict_reader(_reader(arguments[1]))
    return _SCALARS[hint]


def _record_reader(cls: type) -> _Reader:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    readers = {field.name: _reader(hints[field.name]) for field in fields}
    absent, unmade = dataclasses.MISSING, dataclasses.MISSING
    required = [field.name for field in fields if field.default is absent and field.default_factory is unmade]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _WrongError(f"an object is wanted, not {_told(value)}")
        for name in required:
            if name not in value:
                raise _WrongError("is missing").under(f".{name}")
        given, name = {}, ""
        try:
            for name, item in value.items():
                if name in readers:
                    given[name] = readers[name](item)
        except _WrongError as wrong:
            raise wrong.under(f".{name}") from None
        return cls(**given)

    return read


def _list_reader(inner: _Reader) -> _Reader:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _WrongError(f"a list is wanted, not {_told(value)}")
        result: list[Any] = []
        try:
            for item in value:
                result.append(inner(item))  # noqa: PERF401  the length says which one was wrong
        except _WrongError as wrong:
            raise wrong.under(f"[{len(result)}]") from None
        return result

    return read


def _dict_reader(inner: _Reader) -> _Reader:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _WrongError(f"an object is wanted, not {_told(value)}")
        result, key = {}, ""
        try:
            for key, item in value.items():
                result[_encodable(key)] = inner(item)
        except _WrongError as wrong:
            raise wrong.under(f"[{_told(key)}]") from None
        return result

    return read


def _int_reader(bounds: Between) -> _Reader:
    def read(value: Any) -> int:
        if value.__class__ is not int:
            raise _WrongError(f"a whole number is wanted, not {_told(value)}")
        if not bounds.least <= value <= bounds.most:
            raise _WrongError(f"{_told(value)} is not possible, {bounds.least} to {bounds.most} are")
        return int(value)

    return read


def _choice_reader(choices: tuple[Any, ...]) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise _WrongError(f"one of {', '.join(choices)} is wanted, not {_told(value)}")
        return value

    return read


def _float(value: Any) -> float:
    if value.__class__ is not float and value.__class__ is not int:
        raise _WrongError(f"a number is wanted, not {_told(value)}")
    if not abs(value) <= _LARGEST:
        raise _WrongError(f"{_told(value)} is beyond the range of numbers")
    return typing.cast(float, value)  # an integer stays one, so that it is written as it was read


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongError(f"true or false is wanted, not {_told(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongError(f"text is wanted, not {_told(value)}")
    return value if value.isascii() else _encodable(value)


def _file_name(value: Any) -> str:
    name = _text(value)
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise _WrongError(f"the name of a file beside this one is wanted, not {_told(value)}")
    return name


def _anything(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise _WrongError("nested too deeply")
    if isinstance(value, dict):
        return {_encodable(key): _anything(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_anything(item, depth + 1) for item in value]
    return _text(value) if isinstance(value, str) else value


_SCALARS: dict[Any, _Reader] = {int: _int_reader(_INT64), float: _float, bool: _bool, str: _text, Any: _anything}
