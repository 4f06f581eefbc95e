"""Plant one fault of the table in a training job. Plain PyTorch, run in the process of each rank."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

from rankscope.demo.faults import FAULTS, Place

__all__ = ["Plant", "parser", "planted"]

_BUSY = "import os, sys\nwhile os.path.exists(f'/proc/{sys.argv[1]}'): sum(range(10**5))"
"""Program that is busy for as long as the process with the given id runs."""
_DETACHED = """
import subprocess, sys
print(subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL).pid)
"""
"""Program that starts a process and ends, so that this process is not a descendant of the job."""


class Plant:
    """The fault, as one rank sees it."""

    def __init__(self, name: str, size: float | None, bad: int) -> None:
        self.name, self.fault, self.bad = name, FAULTS[name], bad
        self.size = self.fault.size if size is None else size
        self.step = 0
        self._matrix = torch.full((256, 256), 1 / 256)

    def get(self, name: str, usual: float) -> float:
        """Return the size of the named fault where it is planted and acts on this rank now, else the usual value."""
        return self.size if name == self.name and self.acts() else usual

    def act(self, place: Place) -> None:
        """Pause or compute, if the planted fault acts at this place in this step."""
        if place != self.fault.place or not self.acts():
            return
        if self.fault.computes:
            for _ in range(int(self.size)):
                self._matrix = self._matrix @ self._matrix
        else:
            time.sleep(self.size / 1e3)

    def acts(self) -> bool:
        """Return whether the fault acts on this rank in the current step."""
        return self.fault.acts(self.step, dist.get_rank(), dist.get_world_size(), self.bad)


@contextlib.contextmanager
def planted(arguments: argparse.Namespace) -> Iterator[Plant]:
    """Join the process group of the job, plant the fault, and leave the group at the end."""
    torch.set_num_threads(1)  # the ranks share the CPU; more threads would compete for its cores
    bad = int(os.environ["RANK"]) == arguments.bad_rank
    if arguments.fault == "slow_compute" and bad:
        os.environ["MKL_CBWR"] = "COMPATIBLE"  # read when MKL computes for the first time
    with contextlib.ExitStack() as stack:
        if arguments.fault == "neighbour":
            # before gloo starts its threads, which inherit the core
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[-1]} if bad else set(cores[:-1]))
            if bad:
                stack.callback(os.kill, _neighbour(), signal.SIGKILL)
        dist.init_process_group("gloo")
        stack.callback(dist.destroy_process_group)
        yield Plant(arguments.fault, arguments.size, arguments.bad_rank)


def _neighbour() -> int:
    """Start a process that keeps this process's core busy, and return its id."""
    command = [sys.executable, "-I", "-c", _DETACHED, "-I", "-c", _BUSY, str(os.getpid())]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that every job of the demo has."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--steps", type=int, default=40)
    found.add_argument("--batch", type=int, default=8, help="samples per rank and step")
    found.add_argument("--fault", choices=FAULTS, default="none")
    found.add_argument("--bad-rank", type=int, default=1)
    found.add_argument("--size", type=float, help="of the fault; default: the table's")
    return found
