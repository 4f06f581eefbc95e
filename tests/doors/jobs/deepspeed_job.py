"""A job of DeepSpeed's engine under its own launcher; ZERO is the stage."""

import os

import deepspeed
import torch
from common import result, stepped, steps

torch.manual_seed(0)
deepspeed.init_distributed("gloo")
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
settings = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": int(os.environ.get("ZERO", "1"))},
}
engine, *_ = deepspeed.initialize(model=model, config=settings, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
rank = torch.distributed.get_rank()
for step in steps():
    stepped(rank, step)
    engine.backward(engine(torch.randn(8, 256)).square().mean())
    engine.step()
result(rank, engine.module.parameters())
