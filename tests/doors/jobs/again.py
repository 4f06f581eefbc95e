"""A rank that replaces itself twice: before it has trained, and once it has."""

import os
import sys

TIMES = int(os.environ.get("TIMES", "0"))
os.environ["TIMES"] = str(TIMES + 1)
if TIMES == 2:
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE")  # which still has the addresses of the first training

import torch.distributed as dist  # noqa: E402
from common import arguments, train  # noqa: E402

if TIMES > 0:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", **({} if TIMES == 1 else arguments(rank, world)))
    train(rank)
if TIMES < 2:
    os.execv(sys.executable, [sys.executable, *sys.argv])
