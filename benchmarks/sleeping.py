"""A job whose ranks mostly sleep, so that many of them run on one core: tensor parallel groups in a data parallel job.

Launched by many_ranks.py. A step computes a few milliseconds and sleeps in each layer, in place of a device. Calls per
step: two for each layer in the tensor parallel group (one forward, one backward), and two in the data parallel group.
All are issued by Python, as the traces of gloo before torch 2.13 do not tell the group of calls from C++.

One rank's input is late from a given step on. Rank 0 writes the time of each step, and when it began to train.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import rankscope

BEGAN = time.time()
DP_CALLS = 2
WIDTH = 64


class Shared(torch.autograd.Function):
    """The sum over the tensor parallel group, whose gradient is summed over it too."""

    @staticmethod
    def forward(context: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class Layer(nn.Module):
    def __init__(self, group: dist.ProcessGroup, sleep_s: float) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.group, self.sleep_s = group, sleep_s

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(self.sleep_s)
        return self.norm(Shared.apply(self.down(torch.relu(self.up(x))), self.group))


class Input(IterableDataset[Tensor]):
    def __init__(self, stall_s: float, stalled: range) -> None:
        self.stall_s, self.stalled = stall_s, stalled

    def __iter__(self) -> Iterator[Tensor]:
        step = 0
        while True:
            if step in self.stalled:
                time.sleep(self.stall_s)
            yield torch.randn(8, WIDTH)
            step += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tp", type=int, default=8, help="ranks of a tensor parallel group")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--sleep-ms", type=float, default=1500.0, help="of a step")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--stall-ms", type=float, default=300.0)
    parser.add_argument("--stalled", type=int, nargs=2, default=(0, 42), metavar="STEP", help="from, and before")
    parser.add_argument("--stalled-rank", type=int, default=-1)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--plain", action="store_true", help="no torch.optim, which imports the compiler")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=dt.timedelta(minutes=8))
    rank, world = dist.get_rank(), dist.get_world_size()
    first = rank - rank % args.tp
    tp = dist.new_group(list(range(first, first + args.tp)), use_local_synchronization=True)
    dp = dist.new_group(list(range(rank % args.tp, world, args.tp)), use_local_synchronization=True)
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(tp, 1e-3 * args.sleep_ms / args.layers) for _ in range(args.layers)))
    parameters = list(model.parameters())
    halves = [parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]]
    optimizer = None if args.plain else torch.optim.SGD(parameters, lr=0.01)
    stall_s = 1e-3 * args.stall_ms if rank == args.stalled_rank else 0.0
    batches = iter(DataLoader(Input(stall_s, range(*args.stalled)), batch_size=None))
    dist.barrier()
    joined, ends = time.time(), []
    for _ in range(args.steps):
        model(next(batches)).pow(2).mean().backward()
        for half in halves:
            mean = torch.cat([p.grad.flatten() for p in half if p.grad is not None]) / dist.get_world_size(dp)
            dist.all_reduce(mean, group=dp)
            for p, part in zip(half, mean.split([p.numel() for p in half]), strict=True):
                p.grad = part.view_as(p)
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        else:
            with torch.no_grad():
                for p in parameters:
                    if p.grad is not None:
                        p.sub_(0.01 * p.grad)
                    p.grad = None
            rankscope.step()
        ends.append(time.perf_counter())
    if rank == 0:
        steps = [1e3 * (after - before) for before, after in pairwise(ends)]
        memory = re.findall(r"Private_\w+:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text())
        found = {
            "began": BEGAN, "joined": joined, "ended": time.time(), "ms": steps, "cpu_s": time.process_time(),
            "private_mb": sum(map(int, memory)) / 1e3, "compiler": "torch._dynamo" in sys.modules,
        }  # fmt: skip
        args.times.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
