"""A record as an object of the Python API: its fields are attributes, and displays and computed values are added."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

__all__ = ["RecordView"]


class RecordView:
    """Base class. Equal to another of its class with an equal record; not hashable, as records are not."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "record":  # pickle and copy ask for these before ``record`` is set
            raise AttributeError(name)
        try:
            return getattr(self.record, name)
        except AttributeError:
            near = get_close_matches(name, dir(self), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"{type(self).__name__} has no {name!r}{hint}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self.record == other.record)

    __hash__ = None  # type: ignore[assignment]
