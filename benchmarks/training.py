"""The training loop of gpt.py and zoo.py: any model, any mesh, selectable faults. Plain PyTorch, any launcher.

Rank 0 prints the median step time over the steps after the first ten: end of step to end of step, by the device's own
events where there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from faults import NAMES, Planted, planted_here
from meshes import PARALLELS, spread
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

Batch = tuple[tuple[Tensor, ...], Tensor]
"""Inputs of the model and the target; the first dimension is the sample."""
MakeBatch = Callable[[torch.Generator, float], Batch]
"""(generator, factor on length or batch) -> a batch in host memory."""


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallel", choices=PARALLELS, default="ddp")
    parser.add_argument("--degree", type=int, default=2, help="replicas of hsdp, ranks of tp, stages of pp")
    parser.add_argument("--micro", type=int, default=1, help="micro-batches a step")
    parser.add_argument("--fault", default="none", metavar="NAME[@RANK],...", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--bad-rank", type=int, default=1, help="where no @RANK is given")
    parser.add_argument("--fault-from", type=int, default=2, metavar="STEP")
    parser.add_argument(
        "--turns-from",
        type=int,
        default=0,
        metavar="STEP",
        help="from here on three steps with the fault, three without",
    )
    parser.add_argument("--size", type=float, default=1.0, help="scales the fault: 60 ms stall, 50 ms pause, ...")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--times", type=Path, help="where rank 0 writes the time of each step, ms, as JSON: those from the second on"
    )
    return parser


class Stream(IterableDataset[Batch]):
    """Yield batches endlessly, with the input faults of this rank."""

    def __init__(self, make: MakeBatch, seed: int, planted: Planted) -> None:
        self.make, self.seed, self.planted = make, seed, planted

    def __iter__(self) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(self.seed)
        while True:
            self.planted.at("fetch")
            yield self.make(generator, self.planted.stretch)


def join() -> None:
    """Enter the process group, with the device of this local rank where there is one."""
    torch.manual_seed(0)
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")


def train(model: Any, make: MakeBatch, args: argparse.Namespace) -> None:
    """Train ``model`` (it has ``blocks``) as the flags say; the process group is there already."""
    cuda, rank = torch.cuda.is_available(), dist.get_rank()
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    names = planted_here(args.fault, args.bad_rank, rank)
    planted = Planted(names, device, args.size, args.fault_from, args.micro, turns_from=args.turns_from)
    if "recompile" in args.fault:
        torch._dynamo.config.recompile_limit = 1000  # noqa: SLF001  its only door
        model.blocks[0].compile(backend="aot_eager", dynamic=False)
    placed = spread(model, args.parallel, args.degree, args.micro, device)
    planted.attach(placed.model, model.blocks)
    optimizer = torch.optim.AdamW(placed.model.parameters(), lr=1e-4)
    stream = Stream(make, 1000 * args.seed + placed.part, planted)
    batches = iter(DataLoader(stream, batch_size=None, pin_memory=cuda))
    ends: list[Any] = []
    for step in range(args.steps):
        planted.step = step
        inputs, target = next(batches)
        planted.at("forward")
        inputs, target = tuple(t.to(device, non_blocking=True) for t in inputs), target.to(device, non_blocking=True)
        loss = placed.forward_backward(inputs, target, "redundant_sync" in planted.active())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        planted.at("end")
        ends.append(_now(cuda))
    if rank == 0:
        _report(ends, loss, args.times)
    del placed  # before its process group: see README.md, many windows
    dist.destroy_process_group()


def _now(cuda: bool) -> Any:
    if not cuda:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _report(ends: list[Any], loss: Tensor | None, times: Path | None) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        steps = [a.elapsed_time(b) for a, b in pairwise(ends)]
    else:
        steps = [1e3 * (b - a) for a, b in pairwise(ends)]
    if times is not None:
        times.write_text(json.dumps(steps))
    told = "" if loss is None else f", loss {loss.item():.6f}"
    print(f"median step {statistics.median(steps[9:] or steps):.1f} ms{told}", flush=True)
