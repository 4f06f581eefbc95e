"""Folders that nobody named: ``run_0001``, ``sweep_0001`` and so on. A number, never a clock."""

from __future__ import annotations

import re
from pathlib import Path

from rankscope.errors import RunDirError

__all__ = ["next_folder"]


def next_folder(base: Path, stem: str, option: str) -> Path:
    """Make ``base/STEM_0001``, or the one after the largest number that is there; several processes may do so at once.

    Args:
        base: is made, too.
        stem: of the name.
        option: with which the user names a folder instead, for the message.

    Raises:
        RunDirError: it cannot be made.
    """
    try:
        base.mkdir(parents=True, exist_ok=True)
        taken = (re.fullmatch(rf"{stem}_(\d{{1,9}})", entry.name) for entry in base.iterdir())
        number = max((int(found[1]) for found in taken if found), default=0) + 1
        while not _made(path := base / f"{stem}_{number:04d}"):
            number += 1
    except OSError as error:
        raise RunDirError(f"cannot create a folder in {base}: {error.strerror}; name one with {option}") from error
    return path


def _made(path: Path) -> bool:
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True
