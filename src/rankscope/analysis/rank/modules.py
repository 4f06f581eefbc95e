"""Module of the model that host events belong to, if calls of modules were recorded (``with_stack``).

A module is identified by its class and those of the enclosing modules, ``GPT/Block/Linear``. Kineto numbers the
instances of a class in the order in which it first sees them, so one more in an early layer renames all later ones.
Without the numbers, two programs remain comparable, and the layers of a model are pooled. The backward runs outside of
the modules' calls, on a thread of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.nesting import deepest
from rankscope.analysis.rank.view import RankView

__all__ = ["modules_of"]

I64 = NDArray[np.int64]

_CALL = re.compile(r"nn\.Module: (?P<name>.+?)(_\d+)?")


def modules_of(view: RankView, rows: I64) -> tuple[I64, list[str]]:
    """Find the deepest module in whose call each host event begins.

    Args:
        view: the rank.
        rows: rows of its events; -1 for none.

    Returns:
        For each row an index into the list of modules, -1 for none, and that list.
    """
    events, python = view.trace.events, view.trace.python
    found = np.full(len(rows), -1, np.int64)
    names = {code: own for code in np.unique(python.name).tolist() if (own := _class(view.trace.strings[code]))}
    calls = np.flatnonzero(np.isin(python.name, np.array(list(names), np.int64)))
    modules: list[str] = []
    for thread in np.unique(python.tid[calls]).tolist():
        own = calls[python.tid[calls] == thread]
        mine = np.flatnonzero((rows >= 0) & (events.tid[rows.clip(0)] == thread))
        if not len(mine):
            continue
        start, end = python.start[own].tolist(), python.end[own].tolist()
        within = _paths(start, end, [names[code] for code in python.name[own].tolist()], modules)
        begin, until, module = np.array(list(deepest(zip(start, end, within, strict=True))), np.int64).T
        at = events.start[rows[mine]]
        place = np.searchsorted(begin, at, side="right") - 1
        found[mine] = np.where((place >= 0) & (at < until[place.clip(0)]), module[place.clip(0)], -1)
    return found, modules


def _class(name: str) -> str:
    """Return ``Linear`` for ``nn.Module: Linear_3``; empty if the name is not a call of a module."""
    call = _CALL.fullmatch(name)
    return call["name"] if call else ""


def _paths(start: Sequence[int], end: Sequence[int], names: Sequence[str], modules: list[str]) -> list[int]:
    """Return the index of each call's path in ``modules``, which gets new ones appended. Calls are as :func:`deepest`
    takes them."""
    places = {path: place for place, path in enumerate(modules)}
    stack: list[tuple[int, str]] = []
    found = []
    for begin, until, name in zip(start, end, names, strict=True):
        while stack and stack[-1][0] <= begin:
            stack.pop()
        path = f"{stack[-1][1]}/{name}" if stack else name
        stack.append((until, path))
        found.append(places.setdefault(path, len(places)))
    modules[:] = places
    return found
