"""A job that trains in turns in one process, with a knob as it was and turned: what benchmarks/knobs.py launches.

    torchrun --nproc-per-node 2 benchmarks/knob.py fused_optimizer --times times.json

All trainings have the same model, batches and number of steps: before, after, before, after ... so that what else the
machine does falls on both. A window of rankscope lies within the first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpt import GPT
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

VOCABULARY = 8192


@dataclass(frozen=True)
class Setting:
    """How a training is made."""

    width: int = 1024
    layers: int = 8
    sequence: int = 512
    batch: int = 8
    micro: int = 1
    """Backwards a step."""
    fused: bool = False
    precision: str = "high"
    compiled: str | None = None
    """Mode of torch.compile."""
    workers: int = 0
    load_ms: float = 0.0
    """Work of the processor for each batch, in the data loader."""
    sync_each: bool = False
    """Reduce gradients after each backward of a step."""
    bucket_mb: float = 25.0


@dataclass(frozen=True)
class Knob:
    """Two settings, and what the report calls the way from the first to the second."""

    code: str
    """``action.code`` in report.json."""
    before: Setting
    after: Setting


SMALL = {"width": 256, "layers": 12, "sequence": 64, "batch": 2}
TINY = {"width": 128, "layers": 2, "sequence": 32, "batch": 4}
ON_DEVICES = {
    "fused optimizer": Knob("fused_optimizer", Setting(batch=2), Setting(batch=2, fused=True)),
    "TF32": Knob("tensor_cores", Setting(precision="highest"), Setting()),
    "torch.compile, large kernels": Knob("compile", Setting(), Setting(compiled="default")),
    "torch.compile, small kernels": Knob("compile", Setting(**SMALL), Setting(**SMALL, compiled="default")),
    "CUDA graphs": Knob(
        "cuda_graphs", Setting(**SMALL, compiled="default"), Setting(**SMALL, compiled="reduce-overhead")
    ),
    "loader workers": Knob("load_faster", Setting(load_ms=40.0), Setting(load_ms=40.0, workers=6)),
    "one reduction a step": Knob("reduce_once", Setting(micro=4, batch=2, sync_each=True), Setting(micro=4, batch=2)),
    "DDP buckets": Knob("hide_transfers", Setting(bucket_mb=4000.0), Setting()),
}
ON_CPUS = {
    "loader workers": Knob("load_faster", Setting(**TINY, load_ms=40.0), Setting(**TINY, load_ms=40.0, workers=1)),
    "one reduction a step": Knob("reduce_once", Setting(**TINY, micro=4, sync_each=True), Setting(**TINY, micro=4)),
    "DDP buckets": Knob("hide_transfers", Setting(**TINY, bucket_mb=4000.0), Setting(**TINY, bucket_mb=1.0)),
    "torch.compile": Knob("compile", Setting(**TINY), Setting(**TINY, compiled="default")),
}
"""Without a device nothing prices a program that is compiled: there the table shows that nothing is promised."""


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Batches without end, each of which takes the loader's processor for a while."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self._setting, self._seed = setting, seed

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self._seed)
        shape = (self._setting.batch, self._setting.sequence + 1)
        while True:
            ends = time.thread_time() + self._setting.load_ms / 1e3
            while time.thread_time() < ends:
                math.sqrt(2.0)
            tokens = torch.randint(0, VOCABULARY, shape, generator=generator)
            yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    knobs = ON_DEVICES if cuda else ON_CPUS
    parser.add_argument("knob", choices=knobs)
    parser.add_argument("--steps", type=int, default=60, help="of each training")
    parser.add_argument("--pairs", type=int, default=3, help="of a training before and one after")
    parser.add_argument("--times", type=Path, required=True, help="for the steps of each training, ms, by rank 0")
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    knob = knobs[args.knob]
    times = [trained(setting, args.steps, device) for _ in range(args.pairs) for setting in (knob.before, knob.after)]
    if dist.get_rank() == 0:
        args.times.write_text(json.dumps(times))
    dist.destroy_process_group()


def trained(setting: Setting, steps: int, device: torch.device) -> list[float]:
    """ms of every step but the first."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(setting.precision)
    model: nn.Module = GPT(VOCABULARY, setting.width, setting.layers).to(device)
    parallel = DistributedDataParallel(model, bucket_cap_mb=setting.bucket_mb)
    run: Callable[[Tensor], Tensor] = parallel
    if setting.compiled is not None:
        run = torch.compile(parallel, mode=setting.compiled)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=setting.fused or None)
    loader = DataLoader(
        Stream(setting, dist.get_rank()), batch_size=None, num_workers=setting.workers, pin_memory=device.type == "cuda"
    )
    batches, ends = iter(loader), list[Any]()
    for _ in range(steps):
        for micro in range(setting.micro):
            tokens, target = (part.to(device, non_blocking=True) for part in next(batches))
            last = micro == setting.micro - 1
            with nullcontext() if last or setting.sync_each else parallel.no_sync():
                functional.cross_entropy(run(tokens).flatten(0, 1), target.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ends.append(now(device))
    if device.type == "cuda":
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in pairwise(ends)]
    return [1e3 * (b - a) for a, b in pairwise(ends)]


def now(device: torch.device) -> Any:
    """This moment, on the device where there is one."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


if __name__ == "__main__":
    main()
