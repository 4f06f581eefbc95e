"""Node helpers to analysis: the run as a whole (``run.json``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rankscope.limits import Attempt, Count, WindowNumber, WorldSize
from rankscope.records.codec import SCHEMA_VERSION
from rankscope.records.from_script import RunMark
from rankscope.records.rank import RankRecord
from rankscope.records.running.hang import HangVerdict

__all__ = ["FileSum", "RunManifest", "WindowRanks"]


@dataclass(kw_only=True)
class FileSum:
    """Size and checksum that identify a file."""

    sha256: str
    bytes: Count


@dataclass(kw_only=True)
class WindowRanks:
    """One window of one attempt: the ranks that had to record it, and their results."""

    attempt: Attempt
    window: WindowNumber
    world_size: WorldSize
    records: list[RankRecord]
    """One per rank of the world, in order of rank; missing ones have status ``missing``. Missing ranks beyond
    :data:`rankscope.limits.MAX_ABSENT_ROWS` are only counted, in ``mismatches``."""
    mismatches: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class RunManifest:
    """``run.json``: the run as a whole. Written once, by the node that hosts rank 0."""

    run_id: str
    argv: list[str]
    config: dict[str, Any]
    versions: dict[str, str]
    hosts: list[str]
    world_size: WorldSize | None
    attempts: Attempt
    exit_code: int | None
    windows: list[WindowRanks]
    lives: list[RankRecord]
    """Per attempt and rank: steps counted and how it ended (records whose ``window`` is None)."""
    notes: list[str] = field(default_factory=list)
    marks: list[RunMark] = field(default_factory=list)
    """In order of attempt and step."""
    hang: HangVerdict | None = None
    """Why the job made no progress, the last time that it did not."""
    files: dict[str, FileSum] = field(default_factory=dict)
    """Each file that the run has left, by its path in the run directory; see `rankscope verify`."""
    redaction: dict[str, Any] | None = None
    """Set in a copy that `rankscope redact` made: its level, and the treatment of each kind of content."""
    schema_version: str = SCHEMA_VERSION
