"""Every file name in a run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["RUNS_FOLDER", "RunDir"]

RUNS_FOLDER = Path("rankscope_runs")
"""Where runs and sweeps go that were given no folder, below the current one."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The layout of one run directory, shared by all nodes. Creates nothing by itself."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The RunManifest; its presence says that the run has ended."""
        return self.path / "run.json"

    @property
    def sealed_manifest(self) -> Path:
        """The same of an encrypted run."""
        return self.path / "run.json.age"

    @property
    def signature(self) -> Path:
        """Signature of the manifest, where a key was configured."""
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
        """KeptTraces: of which ranks whole traces are kept, where that was left to the verdict."""
        return self.path / "kept.json"

    @property
    def nodes(self) -> Path:
        """One claim and one result file per node."""
        return self.path / "nodes"

    @property
    def launch(self) -> Path:
        """Identity of the launch that uses the directory, written by its first node."""
        return self.nodes / "launch.json"

    def node_claim(self, node: str) -> Path:
        """Written with O_EXCL when a node starts."""
        return self.nodes / f"{node}.claim.json"

    def node_result(self, node: str) -> Path:
        """Written when a node has gathered all it will gather."""
        return self.nodes / f"{node}.result.json"

    @property
    def request_folder(self) -> Path:
        """What ``rankscope capture`` asks of the running job."""
        return self.path / "requests"

    def request(self, number: int) -> Path:
        """One CaptureRequest, numbered in the order of asking."""
        return self.request_folder / f"request_{number:04d}.json"

    @property
    def live_folder(self) -> Path:
        """How the job is doing while it runs: a file a node, replaced every few seconds."""
        return self.path / "live"

    def live(self, node: str) -> Path:
        """NodeLive of one node."""
        return self.live_folder / f"{node}.json"

    @property
    def metrics(self) -> Path:
        """The same as OpenMetrics text, where that is asked for."""
        return self.path / "metrics.prom"

    @property
    def stuck_folder(self) -> Path:
        """Answers of ranks that stood still, or were asked where they are."""
        return self.path / "stuck"

    def stuck(self, node: str) -> Path:
        """NodeAnswers of one node."""
        return self.stuck_folder / f"{node}.json"

    @property
    def stuck_question(self) -> Path:
        """Written by who wants to know where the ranks are now."""
        return self.stuck_folder / "question"

    def announcement(self, attempt: int, number: int) -> Path:
        """A window that rank 0 announced, for the other nodes of a job without a store that all reach."""
        return self.path / "announcements" / f"attempt_{attempt}_window_{number:04d}.json"

    def requests(self) -> list[Path]:
        """All requests, oldest first."""
        return sorted(self.request_folder.glob("request_*.json"))

    def pulse(self, attempt: int, rank: int) -> Path:
        """A rank's log of all steps, gzipped: entries of :data:`rankscope.records.running.step_log.STEP_LOG_ENTRY`."""
        return self.path / f"attempt_{attempt}" / "pulse" / f"rank_{rank:05d}.bin.gz"

    def snapshot(self, attempt: int, window: int, rank: int) -> Path:
        """A rank's CUDA memory snapshot of a window, for PyTorch's memory viewer."""
        return self.window(attempt, window) / f"rank_{rank:05d}.memory.pickle"

    def out_of_memory(self, attempt: int, rank: int) -> Path:
        """A rank's CUDA memory snapshot of the moment the allocator gave up."""
        return self.path / f"attempt_{attempt}" / f"rank_{rank:05d}.oom.memory.pickle"

    def window(self, attempt: int, window: int) -> Path:
        """Folder of one window."""
        return self.path / f"attempt_{attempt}" / f"window_{window:03d}"

    def trace(self, attempt: int, window: int, rank: int) -> Path:
        """One rank's compressed Kineto trace."""
        return self.window(attempt, window) / f"rank_{rank:05d}.trace.json.gz"

    def columns(self, attempt: int, window: int, node: str) -> Path:
        """Columns of the traces that a node recorded in a window, where the traces themselves are not kept."""
        return self.window(attempt, window) / "columns" / f"{node}.columns"

    def record(self, attempt: int, window: int, rank: int) -> Path:
        """One rank's RankRecord of a window."""
        return self.window(attempt, window) / f"rank_{rank:05d}.json"
