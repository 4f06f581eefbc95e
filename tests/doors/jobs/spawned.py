"""mp.spawn: the ranks are children of the script, and know their rank once they have a process group."""

import torch.multiprocessing as mp
from common import RANKS, arguments, join, train


def rank_of(rank: int) -> None:
    join(rank, **arguments(rank, RANKS))
    train(rank)


if __name__ == "__main__":
    mp.spawn(rank_of, nprocs=RANKS)
