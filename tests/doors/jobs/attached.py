"""A script that calls rankscope.attach; torchrun is the command."""

import os

import rankscope

run = os.environ.get("ATTACH_TO")
if run:
    rankscope.attach(run_dir=run, schedule={"skip_first": 2, "wait": 1, "warmup": 1, "active": 5})

from common import join, train  # noqa: E402

join(int(os.environ["RANK"]))
train(int(os.environ["RANK"]))
