"""Content of a merged timeline: steps, ranks, event classes, and the size limit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope.errors import ConfigError
from rankscope.limits import MAX_RANKS
from rankscope.trace.columns import Category

__all__ = ["CATEGORIES", "MAX_MB", "Selection", "parse_categories", "parse_ranks", "parse_steps"]

MAX_MB = 300
"""Default limit. The Perfetto UI needs several times the uncompressed text in memory."""

CATEGORIES = {category.name.lower(): category for category in Category}
"""Name in ``--categories`` and in the timeline's ``cat`` -> event class."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The user's selection; None selects everything.

    Raises:
        ConfigError: a limit that no timeline can keep.
    """

    steps: tuple[int, int] | None = None
    """First and last step number, both included."""
    ranks: frozenset[int] | None = None
    categories: frozenset[Category] | None = None
    """Classes of the recorded events; derived tracks (steps, wait, transfer, straggler) are always included."""
    max_mb: float = MAX_MB
    """Limit of the uncompressed JSON, 10^6 bytes. The gzip file is about a tenth of it."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not self.max_mb >= 0.1:
            raise ConfigError(f"--max-mb {self.max_mb:g} is too small for any timeline; give at least 0.1")

    @property
    def max_bytes(self) -> int:
        """``max_mb`` in bytes."""
        return int(self.max_mb * 1e6)

    def has_rank(self, rank: int) -> bool:
        """Return whether the rank is selected."""
        return self.ranks is None or rank in self.ranks

    def has_step(self, number: int) -> bool:
        """Return whether the step number is selected."""
        return self.steps is None or self.steps[0] <= number <= self.steps[1]


def parse_steps(text: str) -> tuple[int, int]:
    """Parse ``13-15`` or ``13``.

    Raises:
        ConfigError: anything else.
    """
    match = re.fullmatch(r"\s*(\d{1,12})\s*(?:-\s*(\d{1,12})\s*)?", text)
    if not match:
        raise ConfigError(f"--steps {text} is not a range; write 13-15, or 13 for one step")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ConfigError(f"--steps {text} ends before it begins; write {last}-{first}")
    return first, last


def parse_ranks(text: str) -> frozenset[int]:
    """Parse ``0,3`` or ``0-3,7``.

    Raises:
        ConfigError: anything else.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?", part)
        if not match or not int(match[1]) <= int(match[2] or match[1]) < MAX_RANKS:
            raise ConfigError(f"--ranks {text} is no list of ranks; write 0,3 or 0-3,7")
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(ranks)


def parse_categories(text: str) -> frozenset[Category]:
    """Parse ``kernel,cpu_op``.

    Raises:
        ConfigError: a name that is not an event class.
    """
    wanted = [part.strip().lower() for part in text.split(",") if part.strip()]
    unknown = [name for name in wanted if name not in CATEGORIES]
    if unknown or not wanted:
        known = ", ".join(sorted(CATEGORIES))
        raise ConfigError(f"--categories {text}: {', '.join(unknown) or 'nothing'} is unknown; there are {known}")
    return frozenset(CATEGORIES[name] for name in wanted)
