"""Trains until it is told that it is over, by however many ranks; a rank says when it has made its steps.

    elastic.py OUT [RANKS]

A job of so many ranks stands still after these steps, because its last rank sleeps.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

OUT = sys.argv[1]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
over, made = torch.zeros(1), 0
while not over:
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    made += 1
    if made == 15:
        Path(f"{OUT}.{rank}_of_{world}").write_text(f"{os.getpid()}")
        if sys.argv[2:] == [str(world)] and rank == world - 1:
            time.sleep(3600)
    over[0] = float(Path(f"{OUT}.over").exists())
    dist.all_reduce(over)
dist.destroy_process_group()
