"""Plant one fault of the table in a training job. Plain PyTorch, in the process of a rank."""

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
"""Busy for as long as the process lives whose number it is given."""
_STRANGER = """
import subprocess, sys
print(subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL).pid)
"""
"""Starts a process, and ends: then that process is none of the job's."""


class Plant:
    """The fault, as one rank sees it."""

    def __init__(self, name: str, size: float | None, bad: int) -> None:
        self.name, self.fault, self.bad = name, FAULTS[name], bad
        self.size = self.fault.size if size is None else size
        self.step = 0
        self._matrix = torch.full((256, 256), 1 / 256)

    def get(self, name: str, usual: float) -> float:
        """Size of the named fault where it is the planted one and strikes this rank, else what is usual."""
        return self.size if name == self.name and self.struck() else usual

    def strike(self, place: Place) -> None:
        """Pause or compute, if the fault strikes here and now."""
        if place != self.fault.place or not self.struck():
            return
        if self.fault.computes:
            for _ in range(int(self.size)):
                self._matrix = self._matrix @ self._matrix
        else:
            time.sleep(self.size / 1e3)

    def struck(self) -> bool:
        """Whether the fault strikes this rank in the current step."""
        return self.fault.strikes(self.step, dist.get_rank(), dist.get_world_size(), self.bad)


@contextlib.contextmanager
def planted(arguments: argparse.Namespace) -> Iterator[Plant]:
    """Join the process group of a job with its fault planted, and leave it at the end."""
    torch.set_num_threads(1)  # ranks share the CPU; more threads would fight each other
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
    """Keep this process's core busy, with a process of its own; its number."""
    command = [sys.executable, "-I", "-c", _STRANGER, "-I", "-c", _BUSY, str(os.getpid())]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Command-line options of every job of the demo."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--steps", type=int, default=40)
    found.add_argument("--batch", type=int, default=8, help="samples per rank and step")
    found.add_argument("--fault", choices=FAULTS, default="none")
    found.add_argument("--bad-rank", type=int, default=1)
    found.add_argument("--size", type=float, help="of the fault; default: the table's")
    return found
