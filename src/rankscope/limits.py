"""The largest numbers that a record, a request or a configuration may hold, with the reason for each.

Numbers read from files must not determine how much memory is allocated. A record with a number beyond these limits is
damaged or malicious, and is refused.
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
"""Ranks of a job: about ten times the accelerators of the largest existing cluster."""
MAX_ABSENT_ROWS = 4096
"""Ranks without any file that are listed one by one; further ones are only counted."""
MAX_NODES = 4096
"""Files of nodes that are read in one folder: about ten times the nodes of the largest existing jobs."""
MAX_REQUESTS = 1_000
"""Requests for windows in a run. Each is a file for which the helper of every node looks once a second."""
MAX_STEP = 10**12
"""Number of a step: steps of a millisecond for thirty years."""
MAX_WINDOWS = 10_000
"""Windows of a run. Each creates a folder, and a file of every rank."""
MAX_ATTEMPTS = 1_000_000
"""Attempts of a job: one start of all ranks per second, for eleven days."""
MAX_WINDOW_STEPS = 1_000
"""Recorded steps of a window, and likewise warm-up steps. A step has a few thousand to a few ten thousand events, and
every rank holds them in memory until the window closes: a thousand steps take gigabytes. Three to ten steps are enough
for a verdict."""


@dataclass(frozen=True, slots=True)
class Between:
    """A range of numbers, including both ends."""

    least: int
    most: int


Rank = Annotated[int, Between(0, MAX_RANKS - 1)]
LocalRank = Annotated[int, Between(-1, MAX_RANKS - 1)]
"""Range of a number that is -1 if unknown."""
WorldSize = Annotated[int, Between(1, MAX_RANKS)]
Step = Annotated[int, Between(0, MAX_STEP)]
WindowNumber = Annotated[int, Between(0, MAX_WINDOWS)]
Attempt = Annotated[int, Between(0, MAX_ATTEMPTS)]
WindowSteps = Annotated[int, Between(1, MAX_WINDOW_STEPS)]
FileName = Annotated[str, "a name without a folder"]
"""Range of the name of a file next to the record."""
Count = Annotated[int, Between(0, 2**63 - 1)]


def absent_ranks(world_size: int, present: Collection[int]) -> tuple[list[int], int]:
    """Return the first :data:`MAX_ABSENT_ROWS` ranks that are not ``present``, and the number of further ones.

    The run time depends on the number of present and returned ranks, not on ``world_size``.
    """
    there = set(present)
    named = list(islice((rank for rank in range(world_size) if rank not in there), MAX_ABSENT_ROWS))
    return named, max(world_size - sum(0 <= rank < world_size for rank in there) - len(named), 0)
