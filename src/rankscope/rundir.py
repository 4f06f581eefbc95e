"""Every file name of a run, the names of the environment variables that carry it, and atomic writes.

Nothing in a run directory is ever overwritten: a file is written under a temporary name and *linked* to its own,
which fails when that exists already.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import RunDirError

__all__ = [
    "ENV_PYTHONPATH",
    "ENV_SPEC",
    "NodeClaim",
    "RunDir",
    "Spool",
    "claim",
    "next_run_dir",
    "place",
    "replace_text",
    "sha256_of",
    "write_new",
]

ENV_SPEC = "RANKSCOPE_AGENT"
"""Path of the AgentSpec. Present only between the launcher and the first Python process of a rank."""
ENV_PYTHONPATH = "RANKSCOPE_PYTHONPATH"
"""The user's own PYTHONPATH, which the agent puts back."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The layout of one run directory, shared by all nodes. Creates nothing by itself."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The RunManifest; its presence says that the run has ended."""
        return self.path / "run.json"

    @property
    def agent_spec(self) -> Path:
        """The AgentSpec of the head node, kept for the record."""
        return self.path / "agent.json"

    @property
    def report(self) -> Path:
        """Folder of report.json, report.html, report.md."""
        return self.path / "report"

    @property
    def nodes(self) -> Path:
        """One claim and one result file per node."""
        return self.path / "nodes"

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

    def requests(self) -> list[Path]:
        """All requests, oldest first."""
        return sorted(self.request_folder.glob("request_*.json"))

    def pulse(self, attempt: int, rank: int) -> Path:
        """A rank's step times over the whole run: :data:`rankscope.model.PULSE_ENTRY`, one after the other, gzipped."""
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

    def record(self, attempt: int, window: int, rank: int) -> Path:
        """One rank's RankRecord of a window."""
        return self.window(attempt, window) / f"rank_{rank:05d}.json"


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
        """A rank's ring of step times; see :data:`rankscope.model.PULSE_ENTRY`."""
        return self.path / f"pulse_{attempt}_{rank}"

    def pulses(self) -> list[Path]:
        """All such rings."""
        return sorted(self.path.glob("pulse_*_*"))

    def notice(self, attempt: int, name: str) -> Path:
        """What ranks of this node tell each other; see :mod:`rankscope.agent.board`."""
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


def place(source: Path, target: Path) -> None:
    """Give a finished temporary file its name, atomically; refuses to replace.

    Raises:
        RunDirError: ``target`` exists.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        raise RunDirError(f"{target} exists already and is not overwritten; use a new run directory") from None
    except OSError:
        # A file system without hard links (some FUSE and object-store mounts): claim the name, then rename over it.
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            raise RunDirError(f"{target} exists already and is not overwritten; use a new run directory") from None
        source.replace(target)
    else:
        source.unlink()


def replace_text(target: Path, text: str) -> None:
    """Write a file of a spool, which has one writer; readers see all of it or what was there before."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(target)


def write_new(target: Path, text: str) -> None:
    """Write a file that must not exist yet; readers see all of it or nothing."""
    with temporary_beside(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
        place(temporary, target)


@contextlib.contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """A temporary name in the folder of ``target`` (same file system), removed when it is still there at the end."""
    temporary = target.with_name(f".{target.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Hex digest of a file, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """This node's seat in a run."""

    run_id: str
    node: str


def claim(run_dir: RunDir, run_id: str, node: str | None) -> NodeClaim:
    """Take this node's seat in a run directory that other nodes of the same run may share.

    Args:
        run_dir: created when missing.
        run_id: what the nodes of one run have in common.
        node: a name unique in the run (the node rank), or None to be known by host name; several launchers of one
            run on one host then get ``host``, ``host.1`` and so on while the earlier ones still live.

    Raises:
        RunDirError: the directory holds another or a finished run, this seat is taken, or it cannot be written.
    """
    if run_dir.manifest.exists():
        raise RunDirError(f"{run_dir.path} holds a finished run; choose another run.dir (nothing is overwritten)")
    try:
        run_dir.nodes.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"cannot create {run_dir.nodes}: {error.strerror}; choose a writable run.dir") from error
    for other in sorted(run_dir.nodes.glob("*.claim.json")):
        theirs = json.loads(other.read_text(encoding="utf-8"))["run_id"]
        if theirs != run_id:
            raise RunDirError(
                f"{run_dir.path} belongs to run {theirs!r}, this is run {run_id!r}; choose another run.dir"
            )
    host = socket.gethostname()
    base = re.sub(r"[^\w.-]", "_", f"node_{node}" if node is not None else host)
    seat = {"run_id": run_id, "host": host, "pid": os.getpid()}
    for number in range(1000):
        name = base if number == 0 else f"{base}.{number}"
        path = run_dir.node_claim(name)
        try:
            write_new(path, json.dumps(seat))
        except RunDirError:
            taken = json.loads(path.read_text(encoding="utf-8"))
            if node is None and taken["host"] == host and _alive(taken["pid"]):
                continue
            raise RunDirError(
                f"{run_dir.path} was already used by {name} (pid {taken['pid']} on {taken['host']}); "
                "a second run needs its own run.dir"
            ) from None
        return NodeClaim(run_id=run_id, node=name)
    raise RunDirError(f"{run_dir.path} is claimed by 1000 launchers of {host}; choose another run.dir")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def next_run_dir(base: Path) -> tuple[RunDir, str]:
    """Make ``base/run_0001`` or the next free one. The name is the run id: a number, never a clock."""
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirError(f"cannot create {base}: {error.strerror}; name a writable folder with -S run.dir=") from error
    taken = [int(m[1]) for entry in base.iterdir() if (m := re.fullmatch(r"run_(\d+)", entry.name))]
    number = max(taken, default=0) + 1
    while True:
        path = base / f"run_{number:04d}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        except OSError as error:
            raise RunDirError(f"cannot write to {base}: {error.strerror}; name a folder with -S run.dir=") from error
        else:
            return RunDir(path), path.name
