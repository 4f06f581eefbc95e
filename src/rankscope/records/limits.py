"""What is possible: the largest numbers that a record, a request or a configuration may hold, and who says why.

A number that is read is no size to allocate by. One beyond these limits is damage or malice, and the record that holds
it is not believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_RANKS",
    "MAX_STEP",
    "MAX_WINDOWS",
    "MAX_WINDOW_STEPS",
    "Attempt",
    "Between",
    "Count",
    "FileName",
    "LocalRank",
    "Rank",
    "Step",
    "WindowNumber",
    "WindowSteps",
    "WorldSize",
]

MAX_RANKS = 1 << 20
"""Of a job: some ten times the accelerators of the largest cluster there is."""
MAX_STEP = 10**12
"""A step of a millisecond, for thirty years."""
MAX_WINDOWS = 10_000
"""Of a run. Each leaves a folder, and a file of every rank."""
MAX_ATTEMPTS = 1_000_000
"""Times torchrun may start the ranks: one a second, for eleven days."""
MAX_WINDOW_STEPS = 1_000
"""Recorded in one window, and likewise of warm-up. A step is a few thousand to a few ten thousand events, and every
rank holds them in memory until the window closes: a thousand steps are gigabytes. Three to ten are enough for a
verdict."""


@dataclass(frozen=True, slots=True)
class Between:
    """Both ends are allowed."""

    least: int
    most: int


Rank = Annotated[int, Between(0, MAX_RANKS - 1)]
LocalRank = Annotated[int, Between(-1, MAX_RANKS - 1)]
"""-1 where nobody knows."""
WorldSize = Annotated[int, Between(1, MAX_RANKS)]
Step = Annotated[int, Between(0, MAX_STEP)]
WindowNumber = Annotated[int, Between(0, MAX_WINDOWS)]
Attempt = Annotated[int, Between(0, MAX_ATTEMPTS)]
WindowSteps = Annotated[int, Between(1, MAX_WINDOW_STEPS)]
FileName = Annotated[str, "a name without a folder"]
"""Of a file that lies beside the record."""
Count = Annotated[int, Between(0, 2**63 - 1)]
