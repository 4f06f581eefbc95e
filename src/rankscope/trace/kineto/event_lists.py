"""Decode lists of events into structs with msgspec: as a whole, or one by one if some are malformed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Union

import msgspec

__all__ = ["EventLists"]


class EventLists:
    """Decoder of JSON lists of events.

    Args:
        kinds: structs, told apart by their tags.
        convert: converts a decoded JSON value of any form to one of them, or None.
    """

    def __init__(self, kinds: tuple[Any, ...], convert: Callable[[Any], Any]) -> None:
        events: Any = list[Union[kinds]]  # type: ignore[valid-type]  # noqa: UP007  built from a tuple
        self._fast = msgspec.json.Decoder(events)
        self._exact = msgspec.json.Decoder(events, float_hook=Decimal)
        self._lenient = msgspec.json.Decoder(list[Any], float_hook=Decimal)
        self._convert = convert

    def decode(self, text: bytes, *, exact: bool = False) -> list[Any]:
        """Decode a JSON list; ``exact`` keeps decimals as written. An item that is not an event becomes None.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: the text is not such a list.
        """
        try:
            return (self._exact if exact else self._fast).decode(text)  # type: ignore[no-any-return]
        except msgspec.ValidationError:
            return [self._convert(event) for event in self._lenient.decode(text)]
