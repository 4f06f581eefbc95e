"""What is possible: the largest numbers that a record, a request or a configuration may hold, with the reason for each.

A number that is read is no size to allocate by. One beyond these limits is damage or malice, and the record that holds
it is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

__all__ = [
    "MAX_ABSENT_ROWS",
    "MAX_ATTEMPTS",
    "MAX_NODES",
    "MAX_RANKS",
    "MAX_REQUESTS",
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
    "absent_ranks",
]

MAX_RANKS = 1 << 20
"""Of a job: some ten times the accelerators of the largest cluster there is."""
MAX_ABSENT_ROWS = 4096
"""Ranks that left nothing and are named one by one; more than these are only counted."""
MAX_NODES = 4096
"""Files of nodes that are read in one folder: some ten times the nodes of the largest jobs there are."""
MAX_REQUESTS = 1_000
"""For windows, in a run. Each is a file for which the helper of every node looks once a second."""
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
"""-1 where it is not known."""
WorldSize = Annotated[int, Between(1, MAX_RANKS)]
Step = Annotated[int, Between(0, MAX_STEP)]
WindowNumber = Annotated[int, Between(0, MAX_WINDOWS)]
Attempt = Annotated[int, Between(0, MAX_ATTEMPTS)]
WindowSteps = Annotated[int, Between(1, MAX_WINDOW_STEPS)]
FileName = Annotated[str, "a name without a folder"]
"""Of a file that lies beside the record."""
Count = Annotated[int, Between(0, 2**63 - 1)]


def absent_ranks(world_size: int, present: Collection[int]) -> tuple[list[int], int]:
    """The ranks of a world that are not ``present``, the first :data:`MAX_ABSENT_ROWS` of them; and how many more there
    are. Takes the time of what is present and named, not of what ``world_size`` says."""
    there = set(present)
    named = list(islice((rank for rank in range(world_size) if rank not in there), MAX_ABSENT_ROWS))
    return named, max(world_size - sum(0 <= rank < world_size for rank in there) - len(named), 0)
