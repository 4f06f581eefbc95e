"""Work on columns of texts, done once for a column that several ranks have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Once", "distinct"]

T = TypeVar("T")


class Once:
    """Remembers what was computed from a list. Equal columns of many ranks are one list (``trace.files.shared``). List
    and result must not be changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Callable[..., Any], int], tuple[list[str], Any]] = {}

    def __call__(self, work: Callable[[list[str]], T], texts: list[str]) -> T:
        """Return ``work(texts)``."""
        key = work, id(texts)
        if key not in self._known:
            self._known[key] = texts, work(texts)  # the list is kept, so that its id is not reused
        found: T = self._known[key][1]
        return found


def distinct(texts: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts in ascending order, and the index of each text among them."""
    found = sorted(set(texts))
    place = {text: number for number, text in enumerate(found)}
    return found, np.fromiter(map(place.__getitem__, texts), np.int64, len(texts))
