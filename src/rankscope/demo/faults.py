"""The faults that `rankscope demo` can plant, with the expected verdict. Job, help and tests read this table.

Causes that need a device (``host_sync``, ``h2d_copy``, ``allocator``, ``launch_bound``) cannot be planted in a job on
the CPU; benchmarks/gpt.py and the tests for GPUs have them. An intermittent fault has a schedule whose window
contains it: a report cannot know what happens outside the recorded steps, and "balanced" is then the right verdict.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

__all__ = ["FAULTS", "Fault", "Place", "Who"]

Place = Literal["input", "forward", "backward", "between", "job"]
"""Place where a fault acts: while a batch is fetched, between forward and backward, during backward, between the
optimizer and the next batch; or in the setup of the job."""

Who = Literal["bad rank", "taking turns", "all ranks", "no rank"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault, and the expected diagnosis."""

    does: str
    """One line for the help, in which ``{size}`` is replaced by the size."""
    who: Who
    """Ranks in which it is planted. The verdict should name the bad rank, or each rank that takes turns, and no
    other."""
    cause: str | None
    """Kind of the expected finding; None if none is expected."""
    place: Place = "job"
    size: float = 0.0
    """Default size: milliseconds of a pause, or number of matrix products; otherwise in the unit named in ``does``."""
    computes: bool = False
    """Whether the fault computes instead of pausing."""
    every: int = 1
    """The fault acts in each step whose number is a multiple of this."""
    steps: int = 40
    """Number of training steps of the demo, chosen so that a window contains the fault."""
    settings: tuple[str, ...] = ()
    """Settings (as after -S) with which a window contains the fault."""
    script: str = "train.py"
    needs: tuple[str, ...] = ()
    """Additional requirements: packages that rankscope does not depend on, ``MKL``, or ``cores`` (one per rank)."""

    def acts(self, step: int, rank: int, ranks: int, bad: int) -> bool:
        """Return whether the fault acts on this rank in this step."""
        if step % self.every:
            return False
        return {
            "bad rank": rank == bad,
            "taking turns": step // self.every % ranks == rank,
            "all ranks": True,
            "no rank": False,
        }[self.who]

    def stragglers(self, ranks: int, bad: int) -> list[int]:
        """Return the ranks that the verdict should name."""
        return {"bad rank": [bad], "taking turns": list(range(ranks))}.get(self.who, [])

    def line(self) -> str:
        """Return what the fault does, with its default size."""
        return self.does.format(size=f"{self.size:g}")

    def lacking(self, ranks: int) -> str | None:
        """Return the requirement that this machine does not meet, as the end of a sentence; None if it meets all."""
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
        does="no fault: the verdict should name no rank",
        who="no rank",
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
        does="another process is busy on one rank's core; no rank is at fault (needs Linux and a core for each rank)",
        who="no rank",
        cause="contended",
        needs=("cores",),
    ),
    "recompile": Fault(
        does="one rank's sequences have a new length in each step, so that torch.compile compiles again",
        who="bad rank",
        cause="recompile",
        steps=10,
        # after eight lengths torch.compile gives up
        settings=("schedule.skip_first=1", "schedule.wait=0", "schedule.active=4"),
    ),
    "host_pause": Fault(
        does="one rank sleeps for {size} ms between forward and backward",
        who="bad rank",
        cause="host_pause",
        place="forward",
        size=50,
    ),
    "between_steps": Fault(
        does="one rank sleeps for {size} ms between its steps",
        who="bad rank",
        cause="host_pause",
        place="between",
        size=50,
    ),
    "rare_pause": Fault(
        does="one rank sleeps for {size} ms in one step of 20",
        who="bad rank",
        cause="host_pause",
        place="forward",
        size=400,
        every=20,
        steps=30,
        settings=("schedule.active=10",),
    ),
    "burst": Fault(
        does="one rank sleeps for {size} ms after every 25th step",
        who="bad rank",
        cause="host_pause",
        place="between",
        size=500,
        every=25,
        steps=35,
        settings=("schedule.skip_first=17", "schedule.active=10"),
    ),
    "turns": Fault(
        does="the ranks sleep for {size} ms in turn, one rank in each step",
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
        does="an embedding of {size} rows, whose gradients come last, so that no compute hides their reduction",
        who="all ranks",
        cause="comm_exposed",
        size=65536,
    ),
}
