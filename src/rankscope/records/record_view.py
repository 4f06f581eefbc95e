"""A record as an object of the Python API: its fields are attributes, and displays and computed values are added."""

from __future__ import annotations

from typing import Any

__all__ = ["RecordView"]


class RecordView:
    """Base class. Equal to another of its class with an equal record; not hashable, as records are not."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "record":  # pickle and copy ask for these before ``record`` is set
            raise AttributeError(name)
        return getattr(self.record, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self.record == other.record)

    __hash__ = None  # type: ignore[assignment]
