"""Parts that small jobs of many styles share: ``SCRIPT STYLE FOLDER``. Each rank writes its result to ``FOLDER/RANK``.

Each style ends with :func:`out`: parameters, losses and random states, to the last bit, and whatever else it may tell.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

RANK, STEPS = int(os.environ["RANK"]), 26
LOSSES: list[float] = []
STYLES = {}


def style(function):
    STYLES[function.__name__] = function
    return function


def net(width=16, *more, seed=1):
    torch.manual_seed(seed)
    layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh(), *more) for _ in range(2)]
    torch.manual_seed(100 + RANK)
    return nn.Sequential(*layers)


def sgd(model, **more):
    return torch.optim.SGD(model.parameters(), lr=0.1, **{"momentum": 0.9, **more})


def batch(width=16):
    return torch.randn(4, width)


def usual(model, optimizer, data=None):
    """One step."""
    optimizer.zero_grad()
    loss = model(batch() if data is None else data).square().mean()
    loss.backward()
    optimizer.step()
    LOSSES.append(loss.item())


def out(model, *more):
    digest = hashlib.sha256(pickle.dumps(LOSSES))
    for p in model.parameters():
        whole = p.full_tensor() if hasattr(p, "full_tensor") else p
        digest.update(whole.detach().double().numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes())
    digest.update(repr((random.getstate(), np.random.get_state()[1].tolist())).encode())  # noqa: NPY002 - what scripts use
    Path(sys.argv[2], str(RANK)).write_text(f"{digest.hexdigest()} {len(LOSSES)} {more!r}")


def main():
    name = sys.argv[1]
    random.seed(RANK)
    np.random.seed(RANK)  # noqa: NPY002 - as above
    torch.manual_seed(100 + RANK)
    if not name.endswith("_alone"):
        dist.init_process_group("gloo")
    STYLES[name]()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
