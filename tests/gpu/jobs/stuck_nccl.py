"""A training job with NCCL that stands still after some steps because of its last rank.

    stuck_nccl.py skip | order | sizes | asleep | stopped [--after 30] [--until FILE]

Ranks that call different things of one communicator need not stand still: NCCL matches what comes, and the numbers are
wrong. So the metrics and the settings have groups of their own, and each step waits for its device.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch

FAULTS = ("skip", "order", "sizes", "asleep", "stopped")
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
if torch.cuda.device_count() < RANKS:  # NCCL takes each rank for a host of its own, and lets them share a device
    os.environ.update(NCCL_HOSTID=f"host{RANK}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--after", type=int, default=30)
    parser.add_argument("--until", type=Path, required=True)
    options = parser.parse_args()
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl")
    metrics, settings = dist.new_group(group_desc="metrics"), dist.new_group(group_desc="settings")
    model = DistributedDataParallel(nn.Linear(16, 16).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    loss, rate = torch.ones(1 << 22, device="cuda"), torch.ones(3, device="cuda")
    step = 0
    while not options.until.exists():
        fault = options.fault if step == options.after and RANK == RANKS - 1 else ""
        if fault == "asleep":
            fetch_a_batch()
        if fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault == "order":
            share_the_rate(rate, settings)
            add_up(loss, metrics)
        elif fault == "skip":
            share_the_rate(rate, settings)
        else:
            add_up(loss[: len(loss) // 4] if fault == "sizes" else loss, metrics)
            share_the_rate(rate, settings)
        model(torch.randn(4, 16, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        step += 1


def add_up(loss: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(loss, group=group)
    torch.cuda.synchronize()


def share_the_rate(rate: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.broadcast(rate, 0, group=group)
    torch.cuda.synchronize()


def fetch_a_batch() -> None:
    time.sleep(3600)


if __name__ == "__main__":
    main()
