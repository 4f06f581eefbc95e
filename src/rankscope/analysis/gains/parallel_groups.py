"""Groups of tensor and context parallel ranks, by the names that a framework gives its process groups.

Nothing is guessed from what such groups do: a group without such a name is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.windows.analyse import WindowResult

__all__ = ["calls_of", "groups_named", "is_context", "is_tensor"]

Says = Callable[[str], bool]

_OTHER = {"dp", "data", "pp", "pipeline", "ep", "expert", "and", "embedding"}


def is_tensor(name: str) -> bool:
    """Return whether a group's name or description says tensor parallel: ``mesh_tp``, ``tp:0``,
    ``TENSOR_MODEL_PARALLEL_GROUP``; but not ``TENSOR_AND_DATA_PARALLEL_GROUP``."""
    return _says(name, {"tp", "tensor"}, _OTHER | {"cp", "context"})


def is_context(name: str) -> bool:
    """Return whether it says context parallel: ``mesh_cp``, ``CONTEXT_PARALLEL_GROUP``."""
    return _says(name, {"cp", "context"}, _OTHER | {"tp", "tensor"})


def _says(name: str, words: set[str], never: set[str]) -> bool:
    found = set(re.split(r"[^a-z]+", name.lower()))
    return bool(found & words) and not found & never


def groups_named(window: WindowResult, says: Says) -> list[tuple[int, ...]]:
    """Return the ranks of the groups of which more than one rank was recorded and whose name passes ``says``."""
    recorded = {view.rank for view in window.views}
    named = {
        group.ranks
        for view in window.views
        for group in view.trace.groups
        if len(recorded & set(group.ranks)) > 1 and says(group.description or group.name)
    }
    return sorted(named)


def calls_of(window: WindowResult, says: Says) -> NDArray[np.bool_]:
    """Return per matched call whether it belongs to such a group, or to two of its ranks."""
    of = np.array([says(channel.name) for channel in window.matched.channels], np.bool_)
    return of[window.matched.channel] if len(of) else np.zeros(len(window.matched), np.bool_)
