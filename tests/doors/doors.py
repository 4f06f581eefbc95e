"""The table of doors: how ranks are started with and without rankscope. One row per door."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from support.ending import end

JOBS = Path(__file__).parent / "jobs"
PYTHON = os.environ.get("DOORS_PYTHON", sys.executable)
"""A Python that has rankscope and the frameworks; by default that of the tests."""
BIN = Path(PYTHON).parent
RANKSCOPE = [PYTHON, "-m", "rankscope"]


@dataclass(frozen=True)
class Door:
    """How a job is started. ``{ours}`` in the command is where ``rankscope exec`` stands, ``{ranks}`` their number."""

    name: str
    job: str
    command: tuple[str, ...]
    needs: str = ""
    """Modules of PYTHON, or a command on the PATH that starts the ranks."""
    env: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    """Whether ``make test`` tries it."""
    failing: tuple[int, ...] = (1,)
    """What the command ends with when a rank has ended with 3. Several: it is a race of the launcher's own."""
    stopped: tuple[int, ...] = ()
    """What it ends with after SIGTERM, where that is a race of the launcher's own; else always the same."""
    orphans: bool = False
    """Whether its ranks may live on for a while when it is ended by SIGTERM, with and without us. Torch has the kernel
    interrupt those of mp.spawn, which they notice when a call into gloo returns."""
    by_run: bool = False
    """``rankscope run`` stands where torchrun did."""
    attaches: bool = False
    settings: tuple[str, ...] = ()
    """As after ``-S``."""

    def missing(self) -> str | None:
        """Why it cannot be tried here: a tool that is there may still start nothing, as srun where no Slurm runs."""
        if not self.needs:
            return None
        for name in self.needs.split():
            if not shutil.which(name) and (why := _fails(PYTHON, "-c", f"import {name}")):
                return f"{name} is not installed, neither on the PATH nor for {PYTHON}: {why}"
        if self.command[0] != PYTHON and shutil.which(self.needs):
            launcher = [word.replace("{ranks}", "2") for word in self.command if word not in ("{ours}", PYTHON)]
            if why := _fails(*launcher, "true"):
                return f"{self.needs} starts nothing here: {why}"
        return None

    def words(self, ours: list[str], *arguments: str, ranks: int = 2) -> list[str]:
        """The command line, with ``ours`` in its place or nowhere."""
        words: list[str] = []
        for word in self.command:
            words += ours if word == "{ours}" else [str(ranks) if word == "{ranks}" else word]
        return [*words, str(JOBS / self.job), *arguments]


ANSWERS_WITHIN_S = 120.0
"""A launcher that waits for what does not come is taken for one that does not work."""


@cache
def _fails(*command: str) -> str | None:
    """Why a command does not end well; it is ended when it does not end."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=ANSWERS_WITHIN_S)
    except subprocess.TimeoutExpired:
        end(process)
        return f"no end within {ANSWERS_WITHIN_S:.0f} s"
    last = said.decode(errors="replace").strip().rpartition("\n")[2]
    return (last or f"exit code {process.returncode}") if process.returncode else None


TORCHRUN = (PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{ranks}")
"""With a port of its own: torchrun of torch 2.11 takes port 29500 where none is given, which another job may have."""
MPI = ("--allow-run-as-root", "--oversubscribe", "-n", "{ranks}")
DOORS = (
    Door("torchrun (`rankscope run`)", "ranked.py", TORCHRUN, by_run=True),
    Door("`exec` above torchrun", "ranked.py", ("{ours}", *TORCHRUN)),
    Door("`exec` under torchrun", "ranked.py", (*TORCHRUN, "--no-python", "{ours}", PYTHON)),
    Door("mpirun (Open MPI), one `exec` a rank", "ranked.py", ("mpirun.openmpi", *MPI, "{ours}", PYTHON),
         "mpirun.openmpi", failing=(3,)),
    Door("`exec` above mpirun (Open MPI)", "ranked.py", ("{ours}", "mpirun.openmpi", *MPI, PYTHON), "mpirun.openmpi",
         failing=(3,)),
    Door("mpiexec (MPICH), one `exec` a rank", "ranked.py", ("mpiexec.mpich", "-n", "{ranks}", "{ours}", PYTHON),
         "mpiexec.mpich", failing=(3,), stopped=(0, 15, -15)),
    Door("srun, one `exec` a task", "ranked.py",
         ("srun", "-n", "{ranks}", "--overcommit", "--kill-on-bad-exit=1", "{ours}", PYTHON), "srun", failing=(3, 143),
         settings=("gather.exit_grace_s=300",)),
    Door("mp.spawn", "spawned.py", ("{ours}", PYTHON), quick=True, orphans=True),
    Door("Lightning's subprocess launcher", "lightning_job.py", ("{ours}", PYTHON), "lightning", failing=(1,)),
    Door("accelerate launch", "accelerate_job.py",
         ("{ours}", str(BIN / "accelerate"), "launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
          "--mixed_precision", "no", "--dynamo_backend", "no"),
         "accelerate"),
    Door("deepspeed", "deepspeed_job.py",
         ("{ours}", str(BIN / "deepspeed"), "--num_gpus", "2", "--no_local_rank"), "deepspeed",
         env={"DS_ACCELERATOR": "cpu", "ZERO": "1"}, failing=(3,), orphans=True),
    Door("Ray Train", "ray_job.py", ("{ours}", PYTHON), "ray"),
    Door("`rankscope.attach` under torchrun", "attached.py", TORCHRUN, attaches=True),
    Door("`rankscope.attach` in notebook kernels", "notebook.py", (PYTHON,), "nbclient ipykernel", attaches=True),
)  # fmt: skip
