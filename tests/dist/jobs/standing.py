"""A training job with gloo that stands still, or takes long, after 30 steps: one function for each way.

    standing.py FAULT

Rank 1 is the one that does something else, but where a function says otherwise.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

AFTER = 30
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
KEPT: list[object] = []
"""See between.py: DDP that is freed beside gloo's threads can wait for ever."""


def sleep() -> None:
    time.sleep(3600)


def ends_with_its_parent() -> None:
    """See prctl(2), PR_SET_PDEATHSIG: what a killed rank has started would stay, and keep its output open."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# ---------------------------------------------------------------- calls that do not fit together


def barrier() -> None:
    dist.barrier() if RANK == 1 else dist.all_reduce(torch.ones(32))


def roots() -> None:
    dist.broadcast(torch.ones(32), 1 if RANK == 1 else 0)


def subgroup() -> None:
    """Ranks 0 and 1 have a group, in which rank 1 leaves out the first call."""
    if RANK == 0:
        dist.all_reduce(torch.ones(32), group=KEPT[0])
    dist.all_reduce(torch.ones(32))


def receives() -> None:
    if RANK == 1:
        dist.recv(torch.ones(32), 0)


def sends() -> None:
    if RANK == 1:
        dist.send(torch.ones(1 << 24), 0)


def half_a_batch() -> None:
    """Ranks 0 and 1 exchange messages, of which rank 1 leaves out its own."""
    if RANK == 2:
        return
    messages = [dist.P2POp(dist.irecv, torch.ones(32), 1 - RANK)]
    if RANK == 0:
        messages.insert(0, dist.P2POp(dist.isend, torch.ones(32), 1))
    begun = dist.batch_isend_irecv(messages)
    for message in begun:
        message.wait()


def half_an_exchange() -> None:
    """The same without a batch, which would name the peers."""
    if RANK < 2:
        begun = [dist.irecv(torch.ones(32), 1 - RANK)]
        if RANK == 0:
            begun.append(dist.isend(torch.ones(32), 1))
        for message in begun:
            message.wait()


def makes_no_group() -> None:
    if RANK != 1:
        dist.new_group([0, 1, 2])


def monitored() -> None:
    if RANK == 1:
        sleep()
    dist.monitored_barrier()


def ends_early() -> None:
    """It has one batch less, and is at the barrier after the loop."""
    if RANK == 1:
        dist.barrier()


# ---------------------------------------------------------------- waits for something else


def lock() -> None:
    if RANK == 1:
        own = threading.Lock()
        own.acquire()
        own.acquire()


def pipe() -> None:
    if RANK == 1:
        _, end = os.pipe()
        while True:
            os.write(end, bytes(4096))


def asks() -> None:
    if RANK == 1:
        begin, _ = os.pipe()
        sys.stdin = os.fdopen(begin)
        input()


def keeps_pythons_lock() -> None:
    if RANK == 1:
        ctypes.PyDLL(None).sleep(3600)


def saves() -> None:
    """Rank 0 saves to where nothing is read."""
    if RANK == 0:
        path = Path(tempfile.mkdtemp()) / "model.pt"
        os.mkfifo(path)
        torch.save({}, path)


def two() -> None:
    if RANK != 1:
        sleep()


class Batches(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, number: int) -> int:
        if number == 5:
            ends_with_its_parent()
            os.kill(os.getpid(), signal.SIGSTOP)
        return number


def worker() -> None:
    if RANK == 1:
        list(torch.utils.data.DataLoader(Batches(), num_workers=1))


# ---------------------------------------------------------------- takes long


def evaluates() -> None:
    while RANK == 0:
        torch.randn(200, 200) @ torch.randn(200, 200)


def compiles() -> None:
    if RANK == 0:
        subprocess.run([sys.executable, "-c", "while True: pass"], check=False, preexec_fn=ends_with_its_parent)


def has_a_thread() -> None:
    if RANK == 0:
        thread = threading.Thread(target=evaluates, daemon=True)
        thread.start()
        thread.join()


def matches() -> None:
    """A regular expression that takes for ever, and keeps Python's lock."""
    if RANK == 0:
        re.match("(a+)+$", "a" * 60 + "b")


# ---------------------------------------------------------------- jobs


def stages(*, late: int = -1, skips: int = -1) -> None:
    """A pipeline: each step a message to the next rank, and one back."""
    model, optimizer = small()
    for step in range(AFTER + 5):
        if step == AFTER and late == RANK:
            sleep()
        loss = model(torch.randn(4, 16)).sum()
        if RANK > 0:
            dist.recv(torch.ones(8), RANK - 1)
        if RANK < RANKS - 1:
            if not (step == AFTER and skips == RANK):
                dist.send(torch.ones(8), RANK + 1)
            dist.recv(torch.ones(8), RANK + 1)
        loss.backward()
        if RANK > 0:
            dist.send(torch.ones(8), RANK - 1)
        optimizer.step()
        optimizer.zero_grad()


def train(fault: str) -> None:
    model, optimizer = small()
    model = DistributedDataParallel(model)
    KEPT.append(model)
    for step in range(AFTER + 5):
        if step == AFTER:
            globals()[fault]()
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def small() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(16, 16)
    return model, torch.optim.SGD(model.parameters(), 1e-4)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    KEPT.append(dist.new_group([0, 1]))
    if sys.argv[1] == "stage":
        stages(late=1)
    elif sys.argv[1] == "no_message":
        stages(skips=0)
    else:
        train(sys.argv[1])


if __name__ == "__main__":
    main()
