"""A job that trains alternately with a setting unchanged and changed, in one process; launched by benchmarks/knobs.py.

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
from contextlib import AbstractContextManager, nullcontext
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
    """Settings of a training."""

    width: int = 1024
    layers: int = 8
    sequence: int = 512
    batch: int = 8
    micro: int = 1
    """Number of backwards per step."""
    fused: bool = False
    precision: str = "high"
    autocast: bool = False
    """Whether the model computes in bf16."""
    compiled: str | None = None
    """Mode of torch.compile."""
    workers: int = 0
    load_ms: float = 0.0
    """CPU work for each batch in the data loader."""
    copied_mb: int = 0
    """Of each batch, beside its tokens."""
    pinned: bool = True
    sync_each: bool = False
    """Whether gradients are reduced after each backward of a step."""
    bucket_mb: float = 25.0


@dataclass(frozen=True)
class Knob:
    """Two settings, and the code of the advice that leads from the first to the second."""

    code: str
    """``action.code`` in report.json."""
    before: Setting
    after: Setting


SMALL: dict[str, Any] = {"width": 256, "layers": 8, "sequence": 64, "batch": 2}
TINY: dict[str, Any] = {"width": 128, "layers": 2, "sequence": 32, "batch": 4}
LOADED: dict[str, Any] = {**SMALL, "workers": 2, "copied_mb": 64}
ON_DEVICES = {
    "pinned memory": Knob("pin_memory", Setting(**LOADED, pinned=False), Setting(**LOADED)),
    "fused optimizer": Knob("fused_optimizer", Setting(batch=2), Setting(batch=2, fused=True)),
    "bf16": Knob("tensor_cores", Setting(precision="highest"), Setting(autocast=True)),
    "CUDA graphs": Knob(
        "cuda_graphs", Setting(**SMALL, compiled="default"), Setting(**SMALL, compiled="reduce-overhead")
    ),
    "torch.compile, large kernels": Knob("compile", Setting(), Setting(compiled="default")),
    "torch.compile, small kernels": Knob("compile", Setting(**SMALL), Setting(**SMALL, compiled="default")),
    "TF32": Knob("tensor_cores", Setting(precision="highest"), Setting()),
    "loader workers": Knob("load_faster", Setting(load_ms=40.0), Setting(load_ms=40.0, workers=6)),
}
ON_SEVERAL_DEVICES = {
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


def knobs(devices: int) -> dict[str, Knob]:
    """Return the knobs that can be turned on a machine with so many devices."""
    if not devices:
        return ON_CPUS
    return ON_DEVICES if devices == 1 else {**ON_DEVICES, **ON_SEVERAL_DEVICES}


class Stream(IterableDataset[list[Tensor]]):
    """Batches without end (tokens, targets, what else is copied), each of which takes the loader's processor for a
    while."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self._setting, self._seed = setting, seed

    def __iter__(self) -> Iterator[list[Tensor]]:
        generator = torch.Generator().manual_seed(self._seed)
        shape = (self._setting.batch, self._setting.sequence + 1)
        more = torch.ones(self._setting.copied_mb << 18).share_memory_()  # 4 bytes each; workers hand it on uncopied
        while True:
            ends = time.thread_time() + self._setting.load_ms / 1e3
            while time.thread_time() < ends:
                math.sqrt(2.0)
            tokens = torch.randint(0, VOCABULARY, shape, generator=generator)
            yield [tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), more]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    devices = torch.cuda.device_count()
    turned = knobs(devices)
    parser.add_argument("knob", choices=turned)
    parser.add_argument("--steps", type=int, default=60, help="of each training")
    parser.add_argument("--pairs", type=int, default=3, help="of a training before and one after")
    parser.add_argument("--times", type=Path, required=True, help="for the steps of each training, ms, by rank 0")
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if devices:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("nccl" if devices else "gloo")
    knob, times = turned[args.knob], []
    trainings = [Training(setting, device) for setting in (knob.before, knob.after)]
    for _ in range(args.pairs):
        for training in trainings:
            times.append(training.run(args.steps))
            if os.environ["RANK"] == "0":
                args.times.write_text(json.dumps(times))
    if dist.is_initialized():
        dist.destroy_process_group()


class Training:
    """A model with its optimizer and data, created once, so that it is compiled once."""

    def __init__(self, setting: Setting, device: torch.device) -> None:
        self._setting, self._device = setting, device
        torch.manual_seed(0)
        model: nn.Module = GPT(VOCABULARY, setting.width, setting.layers).to(device)
        self._forward: Callable[[Tensor], Tensor] = model
        self._unreduced: Callable[[], AbstractContextManager[None]] = nullcontext
        if dist.is_initialized():
            parallel = DistributedDataParallel(model, bucket_cap_mb=setting.bucket_mb)
            self._forward, self._unreduced = parallel, parallel.no_sync
        if setting.compiled is not None:
            self._forward = torch.compile(self._forward, mode=setting.compiled)
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=setting.fused or None)
        self._loader = DataLoader(
            Stream(setting, int(os.environ["RANK"])),
            batch_size=None,
            num_workers=setting.workers,
            pin_memory=device.type == "cuda" and setting.pinned,
        )
        self._batches: Iterator[list[Tensor]] | None = None

    def run(self, steps: int) -> list[float]:
        """Train a number of further steps, and return the times of all but the first, ms."""
        torch.set_float32_matmul_precision(self._setting.precision)
        if self._batches is None:
            self._batches = iter(self._loader)
        ends = []
        for _ in range(steps):
            for micro in range(self._setting.micro):
                reduces = micro == self._setting.micro - 1 or self._setting.sync_each
                with nullcontext() if reduces else self._unreduced():
                    self._loss(next(self._batches)).backward()
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            ends.append(now(self._device))
        if self._device.type == "cuda":
            torch.cuda.synchronize()
            return [a.elapsed_time(b) for a, b in pairwise(ends)]
        return [1e3 * (b - a) for a, b in pairwise(ends)]

    def _loss(self, batch: list[Tensor]) -> Tensor:
        tokens, target, more = (part.to(self._device, non_blocking=self._setting.pinned) for part in batch)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._setting.autocast):
            loss = functional.cross_entropy(self._forward(tokens).flatten(0, 1), target.flatten())
        return loss + more.sum()


def now(device: torch.device) -> Any:
    """Return the current time, after the device has finished its work if there is one."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


if __name__ == "__main__":
    main()
