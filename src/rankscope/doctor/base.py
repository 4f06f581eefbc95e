"""Types of a check: a function that inspects one property of this node and yields findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rankscope.config import ToolConfig

__all__ = ["Check", "CheckInput", "CheckResult", "State"]

State = Literal["ok", "note", "bad"]
"""``bad``: a job would not, or not completely, be recorded. ``note``: a possible problem. ``ok``: no problem."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the output."""

    state: State
    text: str
    remedy: str = ""
    """Remedy; empty if none is needed."""


@dataclass(frozen=True, slots=True)
class CheckInput:
    """Input of all checks."""

    config: ToolConfig
    run_dir: Path
    """Folder in which runs would be stored, or its nearest parent that exists."""
    hosts: int
    """Number of hosts on which the same checks run at the same time."""


Check = Callable[[CheckInput], Iterable[CheckResult]]
