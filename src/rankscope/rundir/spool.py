"""Every file name in the node-local folder between ranks and node helper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENV_PYTHONPATH", "ENV_SPEC", "Spool"]


ENV_SPEC = "RANKSCOPE_AGENT"
"""Path of the AgentSpec. Present only between the launcher and the first Python process of a rank."""
ENV_PYTHONPATH = "RANKSCOPE_PYTHONPATH"
"""The user's own PYTHONPATH, which the agent puts back."""


@dataclass(frozen=True, slots=True)
class Spool:
    """The node-local folder between the ranks (writers) and the node helper (reader).

    A rank announces a trace by the record beside it, written last; the helper takes both away.
    """

    path: Path

    @property
    def spec(self) -> Path:
        """The AgentSpec every rank of this node reads."""
        return self.path / "agent.json"

    def life(self, attempt: int, rank: int) -> Path:
        """A rank's RankRecord with ``window`` None: rewritten at its start and at its end."""
        return self.path / f"life_{attempt}_{rank}.json"

    def lives(self) -> list[Path]:
        """All such records."""
        return sorted(self.path.glob("life_*_*.json"))

    def pulse(self, attempt: int, rank: int) -> Path:
        """A rank's ring of step times; see :data:`rankscope.records.step_log.STEP_LOG_ENTRY`."""
        return self.path / f"pulse_{attempt}_{rank}"

    def pulses(self) -> list[Path]:
        """All such rings."""
        return sorted(self.path.glob("pulse_*_*"))

    def notice(self, attempt: int, name: str) -> Path:
        """What ranks of this node tell each other; see :mod:`rankscope.agent.windows.notices`."""
        return self.path / f"notice_{attempt}_{name}"

    def request(self, number: int) -> Path:
        """The ``number``-th CaptureRequest as passed on by the helper."""
        return self.path / f"request_{number}.json"

    @property
    def answered(self) -> Path:
        """Number of requests that rank 0 has announced windows for."""
        return self.path / "answered"

    def out_of_memory(self, attempt: int, rank: int) -> Path:
        """CUDA memory when the allocator gave up."""
        return self.path / f"memory_oom_{attempt}_{rank}.pickle"

    def out_of_memories(self) -> list[Path]:
        """All such files."""
        return sorted(self.path.glob("memory_oom_*_*.pickle"))

    @property
    def gathered(self) -> Path:
        """Megabytes that the helper has placed so far."""
        return self.path / "gathered"

    def snapshot(self, attempt: int, window: int, rank: int) -> Path:
        """A window's CUDA memory snapshot."""
        return self.path / f"memory_{attempt}_{window}_{rank}.pickle"

    @property
    def socket(self) -> Path:
        """Where the helper answers libkineto; the name is libkineto's."""
        return self.path / "dynolog"

    def owner(self, attempt: int, rank: int) -> Path:
        """Claimed by the one process that profiles a rank, when it has counted its first step."""
        return self.path / f"owner_{attempt}_{rank}"

    def record(self, attempt: int, window: int, rank: int) -> Path:
        """A finished window's RankRecord."""
        return self.path / f"window_{attempt}_{window}_{rank}.json"

    def records(self) -> list[Path]:
        """All such records not yet taken."""
        return sorted(self.path.glob("window_*_*_*.json"))

    def trace(self, attempt: int, window: int, rank: int) -> Path:
        """A window's plain trace."""
        return self.path / f"trace_{attempt}_{window}_{rank}.json"
