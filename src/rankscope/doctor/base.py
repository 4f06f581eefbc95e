"""What a check is: one function that looks at one thing and says what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rankscope.config import ToolConfig

__all__ = ["Check", "Finding", "Question", "State"]

State = Literal["ok", "note", "bad"]
"""``bad``: with this nothing, or not all, would be recorded. ``note``: worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    state: State
    text: str
    remedy: str = ""
    """What to do; empty where nothing has to be done."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    config: ToolConfig
    run_dir: Path
    """The folder in which runs would be kept, or its nearest parent that exists."""
    hosts: int
    """On so many hosts the same question is asked at the same time."""


Check = Callable[[Question], Iterable[Finding]]
