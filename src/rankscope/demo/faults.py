"""What `rankscope demo` can plant, and what is then true. The job, the help and the tests read this one table.

Causes that need a device (``host_sync``, ``h2d_copy``, ``allocator``, ``launch_bound``) cannot be planted in a job on
the CPU; benchmarks/gpt.py and the tests for GPUs have them. An intermittent fault brings a schedule whose window holds
it: of what happens outside the recorded steps a report says nothing, and "balanced" is then the right verdict.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

__all__ = ["FAULTS", "Fault", "Place", "Who"]

Place = Literal["input", "forward", "backward", "between", "job"]
"""Where a fault strikes: while a batch is fetched, between forward and backward, inside of backward, between the
optimizer and the next batch; or in how the job is set up."""

Who = Literal["bad rank", "taking turns", "all ranks", "nobody"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault and its truth."""

    does: str
    """One line for the help; ``{size}`` stands for the size."""
    who: Who
    """Ranks in which it is planted. The bad rank, or each of those that take turns, is to be named, and no other."""
    cause: str | None
    """Kind of the finding that is due."""
    place: Place = "job"
    size: float = 0.0
    """In milliseconds where it pauses, in matrix products where it computes; else as ``does`` says."""
    computes: bool = False
    """Whether it computes where it strikes, instead of pausing."""
    every: int = 1
    """It strikes in each step whose number is a multiple of this."""
    steps: int = 40
    """Training steps that show it."""
    settings: tuple[str, ...] = ()
    """Settings of the recording (as after -S) that show it."""
    script: str = "train.py"
    needs: tuple[str, ...] = ()
    """Packages beyond those rankscope depends on, ``MKL``, or ``cores``: one for each rank."""

    def strikes(self, step: int, rank: int, ranks: int, bad: int) -> bool:
        """Whether the rank is struck in this step."""
        if step % self.every:
            return False
        return {
            "bad rank": rank == bad,
            "taking turns": step // self.every % ranks == rank,
            "all ranks": True,
            "nobody": False,
        }[self.who]

    def stragglers(self, ranks: int, bad: int) -> list[int]:
        """Ranks that the verdict has to name."""
        return {"bad rank": [bad], "taking turns": list(range(ranks))}.get(self.who, [])

    def line(self) -> str:
        """Return what it does, with its usual size."""
        return self.does.format(size=f"{self.size:g}")

    def lacking(self, ranks: int) -> str | None:
        """Return what it needs and this machine does not have, in words."""
        for need in self.needs:
            if need == "cores":
                cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
                if cores < ranks:
                    return f"to bind {ranks} ranks to cores of their own, and has {cores}"
            elif need == "MKL":
                from torch.backends import mkl

                if not mkl.is_available():  # type: ignore[no-untyped-call]
                    return "a PyTorch with MKL"
            elif find_spec(need) is None:
                return f"{need}; pip install {' '.join(n for n in self.needs if find_spec(n) is None)}"
        return None


FAULTS: dict[str, Fault] = {
    "none": Fault(
        does="nothing is wrong; nobody may be named",
        who="nobody",
        cause=None,
    ),
    "input_stall": Fault(
        does="one rank's data loader takes {size} ms longer for each batch",
        who="bad rank",
        cause="input_stall",
        place="input",
        size=60,
    ),
    "hf_loader": Fault(
        does="the same {size} ms under the Trainer of Hugging Face (needs transformers and accelerate)",
        who="bad rank",
        cause="input_stall",
        place="input",
        size=60,
        script="trainer.py",
        needs=("transformers", "accelerate"),
    ),
    "extra_compute": Fault(
        does="one rank computes {size} matrix products more between forward and backward",
        who="bad rank",
        cause="extra_compute",
        place="forward",
        size=150,
        computes=True,
    ),
    "extra_backward": Fault(
        does="the same {size} products inside of backward",
        who="bad rank",
        cause="extra_compute",
        place="backward",
        size=150,
        computes=True,
    ),
    "uneven_work": Fault(
        does="one rank's sequences are {size} times as long",
        who="bad rank",
        cause="uneven_work",
        size=2,
        settings=("capture=shapes",),  # without shapes, more work and slower work look the same on a CPU
    ),
    "slow_compute": Fault(
        does="one rank computes the same with the vector instructions of an old CPU (needs MKL)",
        who="bad rank",
        cause="slow_compute",
        needs=("MKL",),
    ),
    "neighbour": Fault(
        does="another process is busy on one rank's core: no rank's fault (needs Linux and a core for each rank)",
        who="nobody",
        cause="contended",
        needs=("cores",),
    ),
    "recompile": Fault(
        does="one rank's sequences have a new length in each step, and torch.compile compiles anew",
        who="bad rank",
        cause="recompile",
        steps=10,
        # after eight lengths torch.compile gives up
        settings=("schedule.skip_first=1", "schedule.wait=0", "schedule.active=4"),
    ),
    "host_pause": Fault(
        does="one rank's Python stands still for {size} ms between forward and backward",
        who="bad rank",
        cause="host_pause",
        place="forward",
        size=50,
    ),
    "between_steps": Fault(
        does="one rank loses {size} ms between its steps",
        who="bad rank",
        cause="host_pause",
        place="between",
        size=50,
    ),
    "rare_pause": Fault(
        does="one rank stands still for {size} ms in one step of 20",
        who="bad rank",
        cause="host_pause",
        place="forward",
        size=400,
        every=20,
        steps=30,
        settings=("schedule.active=10",),
    ),
    "burst": Fault(
        does="one rank loses {size} ms in every 25th step, between steps",
        who="bad rank",
        cause="host_pause",
        place="between",
        size=500,
        every=25,
        steps=35,
        settings=("schedule.skip_first=17", "schedule.active=10"),
    ),
    "turns": Fault(
        does="the ranks take turns at standing still for {size} ms, one in each step",
        who="taking turns",
        cause="host_pause",
        place="forward",
        size=300,
        steps=24,
        settings=("schedule.active=8",),
    ),
    "redundant_sync": Fault(
        does="all ranks reduce their gradients after each of {size} micro-batches",
        who="all ranks",
        cause="redundant_sync",
        size=4,
    ),
    "comm_exposed": Fault(
        does="an embedding of {size} rows, whose gradients come last and are reduced when nothing is left to hide it",
        who="all ranks",
        cause="comm_exposed",
        size=65536,
    ),
}
