"""Names of all files in a run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ARRIVING", "RUNS_FOLDER", "RunDir"]

ARRIVING = ".collecting_"
"""How the name of a folder begins that holds what has come of another node's part, until all of it is there."""

RUNS_FOLDER = Path("rankscope_runs")
"""Default folder of runs and sweeps, in the current folder."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The layout of one run directory, shared by all nodes. Its methods return paths and create nothing."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The RunManifest; it exists once the run has ended."""
        return self.path / "run.json"

    @property
    def sealed_manifest(self) -> Path:
        """The RunManifest of an encrypted run."""
        return self.path / "run.json.age"

    @property
    def signature(self) -> Path:
        """Signature of the manifest, if a key was configured."""
        return self.path / "run.json.sig"

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.manifest.exists() or self.sealed_manifest.exists()

    @property
    def agent_spec(self) -> Path:
        """The AgentSpec of the head node, kept for the record."""
        return self.path / "agent.json"

    @property
    def report(self) -> Path:
        """Folder of report.json, report.html, report.md."""
        return self.path / "report"

    @property
    def kept(self) -> Path:
        """KeptTraces: the ranks whose traces are kept, if the verdict decides about that."""
        return self.path / "kept.json"

    @property
    def nodes(self) -> Path:
        """Folder with one claim and one result file per node."""
        return self.path / "nodes"

    def arriving(self, node: str) -> Path:
        """What has come of a node's part."""
        return self.path / f"{ARRIVING}{node}"

    @property
    def launch(self) -> Path:
        """Identity of the launch that uses the directory, written by its first node."""
        return self.nodes / "launch.json"

    def node_claim(self, node: str) -> Path:
        """Claim of a node, written with O_EXCL when the node starts."""
        return self.nodes / f"{node}.claim.json"

    def node_result(self, node: str) -> Path:
        """NodeResult of a node, written after it has gathered all files."""
        return self.nodes / f"{node}.result.json"

    @property
    def request_folder(self) -> Path:
        """Folder of the requests of ``rankscope capture`` to the running job."""
        return self.path / "requests"

    def request(self, number: int) -> Path:
        """One CaptureRequest, numbered in order."""
        return self.request_folder / f"request_{number:04d}.json"

    @property
    def live_folder(self) -> Path:
        """Folder with the state of the running job: one file per node, replaced every few seconds."""
        return self.path / "live"

    def live(self, node: str) -> Path:
        """NodeLive of one node."""
        return self.live_folder / f"{node}.json"

    @property
    def metrics(self) -> Path:
        """The state of the running job as OpenMetrics text, if configured."""
        return self.path / "metrics.prom"

    @property
    def stuck_folder(self) -> Path:
        """Folder with the answers of ranks that were asked where they are."""
        return self.path / "stuck"

    def stuck(self, node: str) -> Path:
        """NodeAnswers of one node."""
        return self.stuck_folder / f"{node}.json"

    @property
    def stuck_question(self) -> Path:
        """File that requests such answers, written by ``rankscope why-stuck``."""
        return self.stuck_folder / "question"

    def announcement(self, attempt: int, number: int) -> Path:
        """A window that rank 0 announced, for the other nodes of a job without a store that all nodes reach."""
        return self.path / "announcements" / f"attempt_{attempt}_window_{number:04d}.json"

    def requests(self) -> list[Path]:
        """All requests, oldest first."""
        return sorted(self.request_folder.glob("request_*.json"))

    def step_log(self, attempt: int, rank: int) -> Path:
        """A rank's log of all steps, gzipped: entries of :data:`rankscope.records.running.step_log.STEP_LOG_ENTRY`."""
        return self.path / f"attempt_{attempt}" / "pulse" / f"rank_{rank:05d}.bin.gz"

    def snapshot(self, attempt: int, window: int, rank: int) -> Path:
        """A rank's CUDA memory snapshot of a window, for PyTorch's memory viewer."""
        return self.window(attempt, window) / f"rank_{rank:05d}.memory.pickle"

    def out_of_memory(self, attempt: int, rank: int) -> Path:
        """A rank's CUDA memory snapshot at an out-of-memory error."""
        return self.path / f"attempt_{attempt}" / f"rank_{rank:05d}.oom.memory.pickle"

    def window(self, attempt: int, window: int) -> Path:
        """Folder of one window."""
        return self.path / f"attempt_{attempt}" / f"window_{window:03d}"

    def trace(self, attempt: int, window: int, rank: int) -> Path:
        """One rank's compressed Kineto trace."""
        return self.window(attempt, window) / f"rank_{rank:05d}.trace.json.gz"

    def columns(self, attempt: int, window: int, node: str) -> Path:
        """Columns of the traces that a node recorded in a window, if the traces themselves are not kept."""
        return self.window(attempt, window) / "columns" / f"{node}.columns"

    def record(self, attempt: int, window: int, rank: int) -> Path:
        """One rank's RankRecord of a window."""
        return self.window(attempt, window) / f"rank_{rank:05d}.json"
