"""A training job of some hundred steps in which one rank is slow from time to time.

    between.py PATTERN [--ms 40] [--steps 600] [--rank 1] [--width 192] [--seed 0] [--where input] [--cuda]

PATTERN: none, burst (every 25th step), drift (growing from step 200 on), since (from step 200 on), turns (every rank in
its turn, every 10 steps), evaluation (all ranks, every 50 steps), checkpoint (rank 0, every 40 steps), spell (a slow
input for 30 steps from step 300 on), always. It is late in its data loader, or asleep in its backward. With --cuda the
ranks communicate by NCCL, and share a device where there are fewer than ranks.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    def __init__(self, options, rank: int, ranks: int) -> None:
        self.options, self.rank, self.ranks = options, rank, ranks

    def __len__(self) -> int:
        return self.options.steps

    def __getitem__(self, step: int) -> torch.Tensor:
        if self.options.where == "input":
            time.sleep(late_ms(self.options, step, self.rank, self.ranks) / 1e3)
        return torch.randn(self.options.width, generator=torch.Generator().manual_seed(step * 64 + self.rank))


def late_ms(options, step: int, rank: int, ranks: int) -> float:
    """What the pattern costs this rank in this step."""
    mine, ms = rank == options.rank, options.ms
    if options.pattern == "burst":
        return ms if mine and step >= 20 and step % 25 == 24 else 0.0
    if options.pattern == "drift":
        return ms * (step - 200) / (options.steps - 200) if mine and step > 200 else 0.0
    if options.pattern == "since":
        return ms if mine and step >= 200 else 0.0
    if options.pattern == "turns":
        return ms if step % 10 == 9 and step // 10 % ranks == rank else 0.0
    if options.pattern == "spell":
        return ms if mine and 300 <= step < 330 else 0.0
    return ms if mine and options.pattern == "always" else 0.0


# With torch 2.13 a backward leaves a Python object in what gloo's threads free after a call. DDP that is freed at that
# moment waits for them with the GIL, and they for the GIL, under any launcher: so it lives as long as the process.
KEPT: list[nn.Module] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern")
    parser.add_argument("--ms", type=float, default=40.0)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", choices=("input", "backward"), default="input")
    parser.add_argument("--cuda", action="store_true")
    options = parser.parse_args()
    device = torch.device("cpu")
    if options.cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        if torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]):  # as if each rank had a host of its own
            os.environ.update(NCCL_HOSTID=os.environ["RANK"], NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
    dist.init_process_group("nccl" if options.cuda else "gloo")
    rank, ranks, now = dist.get_rank(), dist.get_world_size(), [0]
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    width = options.width
    blocks = [nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(4)]
    net = nn.Sequential(*blocks).to(device)
    if options.where == "backward":
        net[2][0].weight.register_hook(lambda _: time.sleep(late_ms(options, now[0], rank, ranks) / 1e3))
    model = DistributedDataParallel(net)
    KEPT.append(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for step, batch in enumerate(DataLoader(Batches(options, rank, ranks), batch_size=None)):
        now[0] = step
        loss = model(batch.to(device).expand(16, width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if options.cuda:
            loss.item()
        if options.pattern == "evaluation" and step % 50 == 49:
            net.eval()
            with torch.no_grad():
                for _ in range(20):
                    net(batch)
            time.sleep(options.ms / 1e3)
            net.train()
        if options.pattern == "checkpoint" and step % 40 == 39 and rank == 0:
            torch.save(net.state_dict(), os.devnull)
            time.sleep(options.ms / 1e3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
