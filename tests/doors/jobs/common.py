"""The training of all doors: DDP over gloo, or over NCCL on one device; rank 1 is late by 0.25 s in each step."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

OUT, MODE, PORT = sys.argv[1:4]
RANKS = int(os.environ.get("DOORS_RANKS", "2"))
DEVICE = os.environ.get("DOORS_DEVICE", "cpu")
LATE_S = 0.25
STEPS = 12
FAILS_WITH = 3


def arguments(rank: int, world: int) -> dict:
    """For init_process_group, where no launcher has a store of its own."""
    return {"init_method": f"tcp://127.0.0.1:{PORT}", "rank": rank, "world_size": world}


def join(rank: int, /, **how) -> None:
    """Form the process group. All ranks share the first device, which NCCL allows to those of different hosts only."""
    if DEVICE == "cuda":
        os.environ["NCCL_HOSTID"] = f"rank-{rank}"
        torch.cuda.set_device(0)
        torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo", **how)


def stepped(rank: int, step: int) -> None:
    """What every script does in every step: be late, fail, or say that it has begun."""
    if rank == 1:
        time.sleep(LATE_S)
    if MODE == "fail" and rank == 1 and step == 5:
        sys.stdout.flush()
        os._exit(FAILS_WITH)
    if MODE == "term" and step == 3:
        Path(f"{OUT}.begun.{rank}").write_text(str(os.getpid()))
    if MODE == "term" and Path(f"{OUT}.over").exists():
        os._exit(0)


def steps() -> range:
    """A job that is to be ended goes on until it is."""
    return range(1000 if MODE == "term" else STEPS)


def result(rank: int, parameters) -> None:
    """To the last bit, and what of ours is left in the environment."""
    left = [*sorted(name for name in os.environ if name.startswith("RANKSCOPE_")), os.environ.get("PYTHONPATH", "")]
    values = [hashlib.sha256(p.detach().cpu().numpy().tobytes()).hexdigest() for p in parameters]
    Path(f"{OUT}.{rank}").write_text(f"{values} {left}")


KEPT: list[torch.nn.Module] = []
"""With torch 2.13 a backward leaves a Python object in what gloo's threads free after a call. DDP that is freed at that
moment waits for them with the GIL, and they for the GIL, under any launcher: so it lives as long as the process."""


def train(rank: int) -> None:
    """The loop, once there is a process group."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).to(DEVICE))
    KEPT.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in steps():
        optimizer.zero_grad()
        stepped(rank, step)
        model(torch.randn(8, 256).to(DEVICE)).square().mean().backward()
        optimizer.step()
    result(rank, model.parameters())
    dist.destroy_process_group()
