"""Entries that other installed packages add to a table of rankscope, through entry points named ``rankscope.KIND``.

An entry point of the group ``rankscope.causes``, for example, names a :class:`~rankscope.causes.base.Cause`::

    [project.entry-points."rankscope.causes"]
    pinned_memory = "my_package.pinned_memory:CAUSE"

The module that an entry point names must import only the module of the entry's type (``rankscope.causes.base`` here),
and not the table: it is loaded while the table is being built.

An entry that cannot be loaded is left out and named in the notes of the report. It never makes an analysis fail.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

__all__ = ["failed", "load", "notes"]

T = TypeVar("T")

_NOTES: list[str] = []


def load(kind: str, expected: type[T], taken: frozenset[str], key: str) -> tuple[T, ...]:
    """Load the entries that other packages provide for one table.

    Args:
        kind: the table; the group of entry points is ``rankscope.KIND``.
        expected: the type of each entry.
        taken: names that the table already contains. An entry with such a name is refused.
        key: the attribute of an entry that holds its name.

    Returns:
        The entries, ordered by the names of their entry points.
    """
    found: list[T] = []
    names = set(taken)
    for point in sorted(entry_points(group=f"rankscope.{kind}"), key=lambda p: (p.name, p.value)):
        try:
            entry = point.load()
            if not isinstance(entry, expected):
                raise TypeError(f"it is a {type(entry).__name__}, not a {expected.__name__}")
            name = getattr(entry, key)
            if name in names:
                raise ValueError(f"the name {name} is taken")
        except Exception as error:
            _NOTES.append(_note(kind, point, error))
            continue
        names.add(name)
        found.append(entry)
    return tuple(found)


def failed(kind: str, name: str, error: Exception) -> None:
    """Note that a loaded entry raised an error while it was used."""
    note = f"the plug-in {name} (rankscope.{kind}) failed and is left out: {type(error).__name__}: {error}"
    if note not in _NOTES:
        _NOTES.append(note)


def notes() -> list[str]:
    """Return one sentence for each entry that was left out so far."""
    return list(_NOTES)


def _note(kind: str, point: EntryPoint, error: Exception) -> str:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"the plug-in {point.name}{package} (rankscope.{kind}) is left out: {type(error).__name__}: {error}"
