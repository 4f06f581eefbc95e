"""Faults that can be planted in chosen ranks of a training job, each at its own place in the step.

``--fault extra_compute@1`` names fault and rank; several are joined by commas.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

JOB_WIDE = ("redundant_sync", "longer_steps")
"""Faults that are planted in all ranks."""


@dataclass
class Planted:
    """The fault of one rank, from step ``first`` on."""

    names: tuple[str, ...]
    device: torch.device
    size: float
    """Scales the fault: 60 ms of stall, 50 ms of pause, 120 products of 4096 x 4096, 8 copies of 64 MiB, steps that are
    10 % longer."""
    first: int
    micro: int
    """Number of micro-batches per step; a fault after the forward pass is divided among them."""
    step: int = 0
    turns_from: int = 0
    """Step from which the fault alternates: ``turns`` steps with it, then as many without; 0: it does not alternate."""
    turns: int = 3
    ended: float | None = None
    """End of the previous step by ``time.perf_counter``, seconds."""

    def at(self, place: str) -> None:
        for name in self.active():
            where, act = ACTS.get(name, (None, None))
            if act is not None and where == place:
                act(self)

    def active(self) -> Iterator[str]:
        return iter(self.names if self.step >= self.first and not self.pausing(self.step) else ())

    def pausing(self, step: int) -> bool:
        """Return whether an alternating fault is absent in this step."""
        return 0 < self.turns_from <= step and (step - self.turns_from) // self.turns % 2 == 1

    @property
    def stretch(self) -> float:
        """Return the factor on the length of this rank's sequences (or batches)."""
        found = 1.0
        for name in self.active():
            if name == "uneven_work":
                found = 2.0
            elif name == "recompile":
                found = 1.0 - (self.step % 64 + 1) / 128  # another shape in each step
        return found

    def attach(self, model: nn.Module, blocks: nn.ModuleList) -> None:
        """Make the model call :meth:`at` after each forward pass, whatever it is wrapped in."""
        model.register_forward_hook(lambda *_: self.at("backward"))
        if "host_sync" in self.names:
            for block in blocks:
                block.register_forward_hook(lambda _, __, output: self._read(output))

    def _read(self, output: torch.Tensor) -> None:
        if "host_sync" in self.active():
            output.flatten()[0].item()


def planted_here(words: str, bad_rank: int, rank: int) -> tuple[str, ...]:
    """Parse the faults of this rank from ``name[@rank],...``; ``none`` is none."""
    found = []
    for word in words.split(","):
        name, _, where = word.partition("@")
        if name not in NAMES:
            raise SystemExit(f"--fault {name} is not known; choose from {', '.join(NAMES)}")
        if name != "none" and (name in JOB_WIDE or rank == int(where or bad_rank)):
            found.append(name)
    return tuple(found)


def _stall(planted: Planted) -> None:
    time.sleep(0.06 * planted.size)


def _pause(planted: Planted) -> None:
    time.sleep(0.05 * planted.size / planted.micro)


def _copy(planted: Planted) -> None:
    for _ in range(int(8 * planted.size)):
        _pageable().to(planted.device, copy=True)


@functools.cache
def _pageable() -> torch.Tensor:
    return torch.randn(16 * 2**20)  # 64 MiB


def _compute(planted: Planted) -> None:
    cuda = planted.device.type == "cuda"
    side, dtype = (4096, torch.bfloat16) if cuda else (256, torch.float32)
    with torch.no_grad():
        extra = torch.randn(side, side, device=planted.device, dtype=dtype)
        for _ in range(int(120 * planted.size / planted.micro)):
            extra = extra @ extra * 1e-3


def _empty(planted: Planted) -> None:
    if planted.device.type == "cuda":
        torch.cuda.empty_cache()


def _longer(planted: Planted) -> None:
    """Keep the host busy for a tenth of the step that ends."""
    now = time.perf_counter()
    until = now if planted.ended is None else now + 0.1 * planted.size * (now - planted.ended)
    while (now := time.perf_counter()) < until:
        pass
    planted.ended = now


def _crash(planted: Planted) -> None:
    if planted.step == 15:
        raise RuntimeError("planted failure")


@functools.cache
def _start_neighbour(device: str, duty: float) -> subprocess.Popen[str]:
    """Start another process on the same device, without the job's environment. It ends with this process."""
    mine = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if k not in mine and not k.startswith(("KINETO", "TORCHELASTIC"))}
    command = [sys.executable, str(Path(__file__).with_name("neighbour.py")), device, str(duty)]
    started = subprocess.Popen(command, env=kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if started.stdout is None or not started.stdout.readline():
        raise RuntimeError(f"the neighbour on {device} did not start")
    return started


def _neighbour(planted: Planted) -> None:
    _start_neighbour(str(planted.device), min(0.5 * planted.size, 1.0))


ACTS: dict[str, tuple[str, Callable[[Planted], None]]] = {
    "input_stall": ("fetch", _stall),
    "h2d_copy": ("forward", _copy),
    "host_pause": ("backward", _pause),
    "extra_compute": ("backward", _compute),
    "crash": ("backward", _crash),
    "allocator": ("end", _empty),
    "longer_steps": ("end", _longer),
    "neighbour": ("fetch", _neighbour),
}
"""Fault -> its place in the step (``fetch``, ``forward``, ``backward``, ``end``) and what it does there."""
NAMES = tuple(dict.fromkeys(("none", *ACTS, "uneven_work", "recompile", "host_sync", *JOB_WIDE)))
