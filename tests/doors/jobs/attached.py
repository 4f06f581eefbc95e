"""A script that attaches itself; torchrun owns the command line."""

import os

import rankscope

run = os.environ.get("ATTACH_TO")
if run:
    rankscope.attach(run_dir=run, schedule={"skip_first": 2, "wait": 1, "warmup": 1, "active": 5})

import torch.distributed as dist  # noqa: E402
from common import train  # noqa: E402

dist.init_process_group("gloo")
train(int(os.environ["RANK"]))
