"""Names of all files in the spool, the node-local folder between ranks and node helper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENV_DISABLE", "ENV_IDENTITY", "ENV_PYTHONPATH", "ENV_SPEC", "Spool", "disabled"]


ENV_SPEC = "RANKSCOPE_AGENT"
"""Variable with the path of the AgentSpec. Set only between the launcher and the first Python process of a rank."""
ENV_PYTHONPATH = "RANKSCOPE_PYTHONPATH"
"""Variable with the user's own PYTHONPATH, which the agent restores; set only if PYTHONPATH was, even if empty."""
ENV_IDENTITY = "RANKSCOPE_TOLD"
"""Variable with the identity that a launcher gave to ``rankscope exec``, as of
:func:`rankscope.rank_identity.identity_key`. A descendant with another identity was started as a rank by another
launcher in between."""
ENV_DISABLE = "RANKSCOPE_DISABLE"
"""Variable that switches rankscope off: the job then runs under torchrun alone."""


def disabled(environ: Mapping[str, str]) -> bool:
    """Return whether the user has switched rankscope off: the variable is set and not empty, ``0`` or ``false``."""
    return environ.get(ENV_DISABLE, "").strip().lower() not in ("", "0", "false")


@dataclass(frozen=True, slots=True)
class Spool:
    """The node-local folder between the ranks (writers) and the node helper (reader).

    A rank writes a trace first and its record last, so that the record announces the trace; the helper removes both.
    """

    path: Path

    @property
    def spec(self) -> Path:
        """The AgentSpec that every rank of this node reads."""
        return self.path / "agent.json"

    @property
    def task(self) -> Path:
        """The NodeTask of this node's helper."""
        return self.path / "task.json"

    @property
    def helper_lock(self) -> Path:
        """Lock (``flock``) that the helper of this node holds."""
        return self.path / "helper.lock"

    @property
    def begin_lock(self) -> Path:
        """Lock that the one ``rankscope exec`` of this node holds that starts the run."""
        return self.path / "begin.lock"

    @property
    def begun(self) -> Path:
        """Result of starting the run: a line for all other ``rankscope exec`` of the same run."""
        return self.path / "begun.json"

    def joined(self, pid: int) -> Path:
        """File of a process of this node that was started as a part of the run, with its start time."""
        return self.path / f"joined_{pid}"

    def joined_ones(self) -> list[Path]:
        """All files of :meth:`joined`."""
        return sorted(self.path.glob("joined_*"))

    @property
    def helper_log(self) -> Path:
        """Standard error of this node's helper and of its child processes."""
        return self.path / "helper.log"

    @property
    def claimed(self) -> Path:
        """The NodeClaim of the helper, kept for a helper that replaces it."""
        return self.path / "claimed.json"

    @property
    def helper_state(self) -> Path:
        """State that each helper of this node leaves to its successor: process id and notes, one JSON line each."""
        return self.path / "helper.jsonl"

    @property
    def job_end(self) -> Path:
        """How the job ended, a JobEnd, kept for ``rankscope gather``."""
        return self.path / "job_end.json"

    @property
    def earlier(self) -> Path:
        """Number of attempts of the job before this node joined it; absent if there was none."""
        return self.path / "earlier_attempts"

    def earlier_attempts(self) -> int:
        """The number in :attr:`earlier`; 0 if absent."""
        try:
            return max(0, int(self.earlier.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return 0

    def process_record(self, attempt: int, rank: int) -> Path:
        """Process record of a rank: a RankRecord with ``window`` None, written at its start and again at its end."""
        return self.path / f"life_{attempt}_{rank}.json"

    def process_records(self) -> list[Path]:
        """All such records."""
        return sorted(self.path.glob("life_*_*.json"))

    def stage(self, attempt: int, rank: int) -> Path:
        """Progress of a rank before its first step: a :data:`~rankscope.records.running.hang.Stage`, and the time when
        it began (ns on CLOCK_REALTIME)."""
        return self.path / f"stage_{attempt}_{rank}"

    def step_ring(self, attempt: int, rank: int) -> Path:
        """A rank's ring buffer of step times; see :data:`rankscope.records.running.step_log.STEP_LOG_ENTRY`."""
        return self.path / f"pulse_{attempt}_{rank}"

    def step_rings(self) -> list[Path]:
        """All ring buffers of step times."""
        return sorted(self.path.glob("pulse_*_*"))

    def call_times(self, ring: Path) -> Path:
        """When the steps of a ring issued their collectives, as far as the rank has read it last; see
        :data:`rankscope.records.running.step_log.CALL_TIMES_ENTRY`."""
        return self.path / f"calls_{ring.name}"

    def step_log(self, ring: Path) -> Path:
        """Step times that the helper has read from a ring buffer so far."""
        return self.path / f"steps_{ring.name}"

    @property
    def live(self) -> Path:
        """The current state of the ranks of this node, a NodeLive; replaced every few seconds."""
        return self.path / "live.json"

    def question(self, attempt: int, rank: int) -> Path:
        """Named pipe from which a rank reads; it answers each line with its position in the program."""
        return self.path / f"question_{attempt}_{rank}"

    def answer(self, attempt: int, rank: int) -> Path:
        """RankAnswer of a rank: its position in the program."""
        return self.path / f"answer_{attempt}_{rank}.json"

    def notice(self, attempt: int, name: str) -> Path:
        """Notice between the ranks of this node; see :mod:`rankscope.agent.windows.notices`."""
        return self.path / f"notice_{attempt}_{name}"

    def announcements(self, attempt: int) -> list[Path]:
        """The windows that rank 0 has announced so far."""
        return sorted(self.path.glob(f"notice_{attempt}_window_*"))

    def request(self, number: int) -> Path:
        """The ``number``-th CaptureRequest, copied from the run directory by the helper."""
        return self.path / f"request_{number}.json"

    @property
    def answered(self) -> Path:
        """Number of requests for which rank 0 has announced windows."""
        return self.path / "answered"

    def out_of_memory(self, attempt: int, rank: int) -> Path:
        """A rank's CUDA memory snapshot at an out-of-memory error."""
        return self.path / f"memory_oom_{attempt}_{rank}.pickle"

    def out_of_memories(self) -> list[Path]:
        """All files of :meth:`out_of_memory`."""
        return sorted(self.path.glob("memory_oom_*_*.pickle"))

    @property
    def answers(self) -> Path:
        """The latest answers of the ranks of this node, a NodeAnswers."""
        return self.path / "answers.json"

    @property
    def gathered(self) -> Path:
        """Megabytes that the helper has placed so far."""
        return self.path / "gathered"

    def snapshot(self, attempt: int, window: int, rank: int) -> Path:
        """A window's CUDA memory snapshot."""
        return self.path / f"memory_{attempt}_{window}_{rank}.pickle"

    def owner(self, attempt: int, rank: int) -> Path:
        """File by which a process claims a rank, after its first step; only that process is profiled."""
        return self.path / f"owner_{attempt}_{rank}"

    @property
    def claim_lock(self) -> Path:
        """Lock that a process holds while it claims its rank."""
        return self.path / "claim.lock"

    def record(self, attempt: int, window: int, rank: int) -> Path:
        """A finished window's RankRecord."""
        return self.path / f"window_{attempt}_{window}_{rank}.json"

    def records(self) -> list[Path]:
        """All records of finished windows that the helper has not processed yet."""
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
        """The ranks whose columns are in the run directory, a ReducedRanks."""
        return self.path / f"reduced_{attempt}_{window}.json"

    @property
    def part(self) -> Path:
        """This node's part of a run directory in a store."""
        return self.path / "run"

    def held(self, attempt: int, window: int, rank: int) -> Path:
        """A window's trace, compressed, until it is decided whether it is kept."""
        return self.path / f"held_{attempt}_{window}_{rank}.trace.json.gz"

    def holds(self) -> list[Path]:
        """All traces of :meth:`held`."""
        return sorted(self.path.glob("held_*_*_*.trace.json.gz"))

    def trace(self, attempt: int, window: int, rank: int) -> Path:
        """A window's uncompressed trace."""
        return self.path / f"trace_{attempt}_{window}_{rank}.json"
