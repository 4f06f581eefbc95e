"""A training job that stands still after some steps because of its last rank.

stuck.py skip | order | asleep | stopped | long | late | unmet [--after 30] [--until FILE]

``late``: it does not come to the process group; ``unmet``: nor to the first collective after it. ``long``: it goes on
when FILE is there.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAULTS = ("skip", "order", "asleep", "stopped", "long", "late", "unmet")


KEPT: list[nn.Module] = []
"""See between.py: DDP that is freed beside gloo's threads can wait for ever."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--after", type=int, default=30)
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    if options.fault == "late" and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        fetch_a_batch()
    dist.init_process_group("gloo")
    if options.fault == "unmet" and dist.get_rank() == dist.get_world_size() - 1:
        load_a_model()
    last = dist.get_rank() == dist.get_world_size() - 1
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 16))
    KEPT.append(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    for step in range(options.after + 10):
        bad = step == options.after
        if bad and last and options.fault == "asleep":
            fetch_a_batch()
        if bad and last and options.fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if bad and last and options.fault == "long":
            evaluate(options.until)
        if options.fault in ("skip", "order"):
            loss, count = torch.ones(1), torch.ones(3)
            if bad and last and options.fault == "order":
                dist.broadcast(count, 0)
                dist.all_reduce(loss)
            else:
                if not (bad and last and options.fault == "skip"):
                    dist.all_reduce(loss)
                dist.broadcast(count, 0)
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def fetch_a_batch() -> None:
    time.sleep(3600)


def load_a_model() -> None:
    time.sleep(3600)


def evaluate(until: Path) -> None:
    while not until.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    main()
