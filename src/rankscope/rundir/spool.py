"""Every file name in the node-local folder between ranks and node helper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENV_DISABLE", "ENV_PYTHONPATH", "ENV_SPEC", "ENV_TOLD", "Spool", "disabled"]


ENV_SPEC = "RANKSCOPE_AGENT"
"""Path of the AgentSpec. Present only between the launcher and the first Python process of a rank."""
ENV_PYTHONPATH = "RANKSCOPE_PYTHONPATH"
"""The user's own PYTHONPATH, which the agent puts back; there only if that was, be it empty."""
ENV_TOLD = "RANKSCOPE_TOLD"
"""What the launcher above ``rankscope exec`` had told it (:func:`rankscope.rank_identity.was_told`). A process below
that was told something else was started as a rank by a launcher below."""
ENV_DISABLE = "RANKSCOPE_DISABLE"
"""The way out: torchrun and nothing else."""


def disabled(environ: Mapping[str, str]) -> bool:
    """Whether the user has switched rankscope off: the variable is there and is not empty, ``0`` or ``false``."""
    return environ.get(ENV_DISABLE, "").strip().lower() not in ("", "0", "false")


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

    @property
    def task(self) -> Path:
        """The NodeTask of this node's helper."""
        return self.path / "task.json"

    @property
    def helper_lock(self) -> Path:
        """Locked (``flock``) by the one process that is this node's helper."""
        return self.path / "helper.lock"

    @property
    def begin_lock(self) -> Path:
        """Locked by the one ``rankscope exec`` of this node that starts the run."""
        return self.path / "begin.lock"

    @property
    def begun(self) -> Path:
        """What that one came to: a line for all others that share its run."""
        return self.path / "begun.json"

    def joined(self, pid: int) -> Path:
        """Left by each process of this node that was started as a part of the run, with the time of its start."""
        return self.path / f"joined_{pid}"

    def joined_ones(self) -> list[Path]:
        """All such files."""
        return sorted(self.path.glob("joined_*"))

    @property
    def helper_log(self) -> Path:
        """Standard error of this node's helper, and of what it starts."""
        return self.path / "helper.log"

    @property
    def claimed(self) -> Path:
        """The NodeClaim that the helper has been granted, kept for the helper that may have to follow it."""
        return self.path / "claimed.json"

    @property
    def helper_state(self) -> Path:
        """What each helper of this node leaves to the next: its process id and its notes, a JSON line each."""
        return self.path / "helper.jsonl"

    @property
    def job_end(self) -> Path:
        """How the job ended, a JobEnd, kept for ``rankscope gather``."""
        return self.path / "job_end.json"

    @property
    def earlier(self) -> Path:
        """How many attempts of the job there had been when this node came to it; absent where there was none."""
        return self.path / "earlier_attempts"

    def earlier_attempts(self) -> int:
        """That number."""
        try:
            return max(0, int(self.earlier.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return 0

    def life(self, attempt: int, rank: int) -> Path:
        """A rank's RankRecord with ``window`` None: rewritten at its start and at its end."""
        return self.path / f"life_{attempt}_{rank}.json"

    def lives(self) -> list[Path]:
        """All such records."""
        return sorted(self.path.glob("life_*_*.json"))

    def stage(self, attempt: int, rank: int) -> Path:
        """How far a rank is on its way to its first step: a :data:`~rankscope.records.running.hang.Stage`, and since
        when (ns on CLOCK_REALTIME)."""
        return self.path / f"stage_{attempt}_{rank}"

    def pulse(self, attempt: int, rank: int) -> Path:
        """A rank's ring of step times; see :data:`rankscope.records.running.step_log.STEP_LOG_ENTRY`."""
        return self.path / f"pulse_{attempt}_{rank}"

    def pulses(self) -> list[Path]:
        """All such rings."""
        return sorted(self.path.glob("pulse_*_*"))

    def step_log(self, ring: Path) -> Path:
        """What the helper has taken out of a ring so far."""
        return self.path / f"steps_{ring.name}"

    @property
    def live(self) -> Path:
        """How the ranks of this node are doing now, a NodeLive; replaced every few seconds."""
        return self.path / "live.json"

    def question(self, attempt: int, rank: int) -> Path:
        """A named pipe at which a rank listens; what is written into it is answered."""
        return self.path / f"question_{attempt}_{rank}"

    def answer(self, attempt: int, rank: int) -> Path:
        """Where a rank is that was asked, a RankAnswer."""
        return self.path / f"answer_{attempt}_{rank}.json"

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
    def answers(self) -> Path:
        """Where the ranks of this node stood when they were asked last, a NodeAnswers."""
        return self.path / "answers.json"

    @property
    def gathered(self) -> Path:
        """Megabytes that the helper has placed so far."""
        return self.path / "gathered"

    def snapshot(self, attempt: int, window: int, rank: int) -> Path:
        """A window's CUDA memory snapshot."""
        return self.path / f"memory_{attempt}_{window}_{rank}.pickle"

    def owner(self, attempt: int, rank: int) -> Path:
        """Claimed by the one process that profiles a rank, when it has counted its first step."""
        return self.path / f"owner_{attempt}_{rank}"

    @property
    def claim_lock(self) -> Path:
        """Locked by the process that claims its rank."""
        return self.path / "claim.lock"

    def record(self, attempt: int, window: int, rank: int) -> Path:
        """A finished window's RankRecord."""
        return self.path / f"window_{attempt}_{window}_{rank}.json"

    def records(self) -> list[Path]:
        """All such records not yet taken."""
        return sorted(self.path.glob("window_*_*_*.json"))

    def placed(self, attempt: int, window: int, rank: int) -> Path:
        """The record as the helper has placed it in the run directory, kept until the node's result is written."""
        return self.path / f"placed_{attempt}_{window}_{rank}.json"

    def placed_records(self) -> list[Path]:
        """All such records."""
        return sorted(self.path.glob("placed_*_*_*.json"))

    def columns(self, attempt: int, window: int) -> Path:
        """Columns of the traces that this node recorded in a window."""
        return self.path / f"columns_{attempt}_{window}.columns"

    def reduced(self, attempt: int, window: int) -> Path:
        """Ranks whose columns are in the run directory, a ReducedRanks."""
        return self.path / f"reduced_{attempt}_{window}.json"

    @property
    def part(self) -> Path:
        """This node's part of a run directory that lies in a store."""
        return self.path / "run"

    def held(self, attempt: int, window: int, rank: int) -> Path:
        """A window's trace, compressed, while it is not decided whether it is kept."""
        return self.path / f"held_{attempt}_{window}_{rank}.trace.json.gz"

    def holds(self) -> list[Path]:
        """All such traces."""
        return sorted(self.path.glob("held_*_*_*.trace.json.gz"))

    def trace(self, attempt: int, window: int, rank: int) -> Path:
        """A window's plain trace."""
        return self.path / f"trace_{attempt}_{window}_{rank}.json"
