"""Identity of a process (rank, world size, job), read from the environment variables that its launcher sets.

No value is guessed. A variable is read only if a known launcher sets it, and one that is not a number counts as not
set. If the world size is missing, the process group provides it later (:mod:`rankscope.agent.membership`).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # each Python process of a job imports this; typing, dataclasses and pathlib take longer than it
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["DIALECTS", "Dialect", "Identity", "identity_from", "identity_key", "launcher_process", "started_process"]


class Dialect:
    """The environment variables of one launcher. An empty name: the launcher does not set such a variable.

    Args:
        name: name of the launcher.
        rank: variable with the rank of a process; the next three are named likewise.
        nodes: variable with the number of nodes.
        job: variables that together identify the job, the same on all nodes.
        at_once: variables that must be set as well; without them the process was not started as a rank.
    """

    def __init__(
        self,
        name: str,
        rank: str,
        world_size: str = "",
        local_rank: str = "",
        local_world_size: str = "",
        nodes: str = "",
        job: tuple[str, ...] = (),
        at_once: tuple[str, ...] = (),
    ) -> None:
        self.name, self.rank, self.world_size = name, rank, world_size
        self.local_rank, self.local_world_size, self.nodes = local_rank, local_world_size, nodes
        self.job, self.at_once = job, at_once


class Identity:
    """The identity that a launcher gave to one process; None for values that it did not provide."""

    def __init__(
        self,
        launcher: str,
        rank: int,
        world_size: int | None = None,
        local_rank: int | None = None,
        local_world_size: int | None = None,
        nodes: int | None = None,
        job: str | None = None,
    ) -> None:
        self.launcher, self.rank, self.world_size = launcher, rank, world_size
        self.local_rank, self.local_world_size = local_rank, local_world_size
        self.nodes, self.job = nodes, job

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"Identity({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @property
    def several_nodes(self) -> bool:
        """Whether the job is known to have ranks on other nodes."""
        if self.nodes is not None:
            return self.nodes > 1
        sizes = self.world_size, self.local_world_size
        return sizes[0] is not None and sizes[1] is not None and sizes[1] < sizes[0]


DIALECTS = (
    # torchrun and all that start it or imitate it: accelerate, deepspeed, Composer, TorchX, Kubeflow's PyTorchJob.
    Dialect(
        "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
    ),
    # Open MPI: ompi_mpi_init sets these for every process that mpirun starts (mpirun(1), "Exported Environment").
    Dialect(
        "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE", job=("PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"),
    ),
    Dialect(
        "mpirun (MVAPICH2)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE", job=("PMI_PORT",),
    ),
    # Slurm: srun(1), "OUTPUT ENVIRONMENT VARIABLES". A batch script has SLURM_PROCID too, and is no task of a step.
    Dialect(
        "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_STEP_NUM_NODES",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"), at_once=("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"),
    ),
    # MPICH's Hydra, and Intel MPI, which adds the local ones.
    Dialect("mpiexec (Hydra)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", job=("PMI_PORT",)),
    Dialect("PMIx", "PMIX_RANK", job=("PMIX_NAMESPACE",)),
)  # fmt: skip
"""The launcher nearest to the rank first: torchrun within a Slurm step sets the rank, the step only sets the task."""


def identity_from(environ: Mapping[str, str]) -> Identity | None:
    """Return the identity that the nearest launcher gave to a process; None if no launcher did.

    Args:
        environ: environment of the process.
    """
    for dialect in DIALECTS:
        rank = _number(environ, dialect.rank)
        if rank is None or not all(name in environ for name in dialect.at_once):
            continue
        local_world = _number(environ, dialect.local_world_size)
        if dialect.name == "srun":
            local_world = _tasks_here(environ)
        job = [environ[name] for name in dialect.job if environ.get(name)]
        return Identity(
            launcher=dialect.name, rank=rank, world_size=_number(environ, dialect.world_size),
            local_rank=_number(environ, dialect.local_rank), local_world_size=local_world,
            nodes=_number(environ, dialect.nodes), job=" ".join(job) if len(job) == len(dialect.job) > 0 else None,
        )  # fmt: skip
    return None


def identity_key(identity: Identity | None) -> str:
    """Return an identity as one string, for comparison with the identity of a descendant process."""
    return "" if identity is None else f"{identity.launcher} {identity.rank}/{identity.world_size}"


def _number(environ: Mapping[str, str], name: str) -> int | None:
    word = environ.get(name, "").strip() if name else ""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 9 else None


def _tasks_here(environ: Mapping[str, str]) -> int | None:
    """Return the number of tasks on this node, from a list like ``4(x2),3`` (``SLURM_STEP_TASKS_PER_NODE``)."""
    node = _number(environ, "SLURM_NODEID")
    here = 0
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        count, _, times = part.partition("(x")
        times = times.rstrip(")") or "1"
        if node is None or not count.isdigit() or not times.isdigit():
            return None
        here += int(times)
        if node < here:
            return int(count)
    return None


def launcher_process(identity: Identity, proc: Path | None = None) -> str:
    """Return the process that started the ranks of this node: its id, start time and boot id, unique to the launch.

    It is the nearest ancestor whose environment has another identity. Shell wrappers around a rank have the same
    identity. An ancestor whose environment cannot be read, because it belongs to another user (Slurm's daemon), counts
    as another identity.

    Raises:
        OSError: /proc does not describe processes on this system.
    """
    from pathlib import Path

    from rankscope.procfs import BEGUN, read_stat

    proc = proc or Path("/proc")
    pid, _ = _way_up(identity, proc)
    begun = read_stat(proc / str(pid))[BEGUN]
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    return f"process {pid} begun {begun} boot {boot}"


def started_process(identity: Identity, proc: Path | None = None) -> int:
    """Return the id of the process that the launcher started for this rank: this one, or a wrapper above it.

    Raises:
        OSError: /proc does not describe processes on this system.
    """
    from pathlib import Path

    return _way_up(identity, proc or Path("/proc"))[1]


def _way_up(identity: Identity, proc: Path) -> tuple[int, int]:
    """Return the ids of the nearest ancestor with another identity, and of its child on the way to this process."""
    from rankscope.procfs import PARENT, read_stat

    pid, below = os.getppid(), os.getpid()
    while pid > 1:
        try:
            words = (proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            break
        pairs = (os.fsdecode(word).partition("=") for word in words)
        if identity_key(identity_from({name: value for name, _, value in pairs})) != identity_key(identity):
            break
        below = pid
        pid = int(read_stat(proc / str(pid))[PARENT])
    return pid, below
