"""A record as an object of the Python API: its fields are attributes, and what is shown or computed comes on top."""

from __future__ import annotations

from typing import Any

__all__ = ["RecordView"]


class RecordView:
    """Equal to another of its class with an equal record; not hashable, as records are not."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "record":  # as pickle and copy ask before there is a record
            raise AttributeError(name)
        return getattr(self.record, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self.record == other.record)

    __hash__ = None  # type: ignore[assignment]
