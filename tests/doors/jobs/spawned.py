"""mp.spawn: the ranks are children of the script, and know themselves when they have a process group."""

import torch.distributed as dist
import torch.multiprocessing as mp
from common import arguments, train


def rank_of(rank: int) -> None:
    dist.init_process_group("gloo", **arguments(rank, 2))
    train(rank)


if __name__ == "__main__":
    mp.spawn(rank_of, nprocs=2)
