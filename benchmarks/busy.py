"""A training job with other activities that run operators or affect a profiler.

It is to be run by torchrun or by rankscope, and computes the same under both, to the last bit.

    torchrun --nproc-per-node 2 benchmarks/busy.py --style hooks --beside threads checkpoint async ranges --steps 200
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STYLES = ("ddp", "fsdp2", "hooks", "compiled", "graph")
"""DistributedDataParallel; FSDP2; optimizers stepped by gradient hooks within backward; a training step under
torch.compile; a training step replayed as one CUDA graph."""
BESIDE = ("threads", "checkpoint", "async", "ranges", "workers", "profiler")
"""A thread that computes metrics; one that writes checkpoints; collectives of gloo that are waited for steps later;
blocks of record_function that last many steps; DataLoader workers that are started anew every few steps; the script's
own torch.profiler now and then."""


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--style", choices=STYLES, default="ddp")
    parser.add_argument("--beside", nargs="*", choices=BESIDE, default=[])
    parser.add_argument("--step-ms", type=float, default=0.0, help="sleep so long in each step")
    parser.add_argument("--steps", type=int, default=0, help="end after so many")
    parser.add_argument("--seconds", type=float, default=1e9, help="or after so long")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--compiler", default="aot_eager", help="backend of torch.compile")
    parser.add_argument("--end", default="plain", choices=("plain", "raise", "kill", "restart", "terminate", "exit"))
    parser.add_argument("--seed", type=int, default=0, help="of the moment of an end that is not plain")
    parser.add_argument("--losses", type=Path, help="folder for the losses of each rank")
    return parser.parse_args()


class Beside:
    """Activities that run during the training, from :meth:`start` to :meth:`stop`."""

    def __init__(self, names: list[str], model: nn.Module) -> None:
        self._names = names
        # A copy, because a thread must not read the state while FSDP moves it.
        self._shapes = [tuple(parameter.shape) for parameter in model.parameters()]
        self._over = threading.Event()
        works = {"threads": self._metrics, "checkpoint": self._checkpoints}
        self._threads = [threading.Thread(target=work, daemon=True) for name, work in works.items() if name in names]
        self._under_way: deque[Any] = deque()
        self._blocks = contextlib.ExitStack()
        self._profile: Any = None
        # A separate group, so that outstanding calls in it do not delay others.
        self._group = dist.new_group(backend="gloo") if "async" in names else None

    def start(self) -> None:
        """Start all activities."""
        for thread in self._threads:
            thread.start()

    def _metrics(self) -> None:
        values = torch.zeros(64)
        while not self._over.is_set():
            for _ in range(20):
                values = (values + torch.ones(64)).mul(0.5).sqrt()
            time.sleep(0.0005)

    def _checkpoints(self) -> None:
        while not self._over.is_set():
            torch.save([torch.zeros(shape) + 1 for shape in self._shapes], io.BytesIO())
            time.sleep(0.002)

    def step(self, number: int) -> None:
        """Run what is due after a step of the training."""
        if self._group is not None:
            self._under_way.append(dist.all_reduce(torch.ones(256), group=self._group, async_op=True))
            while len(self._under_way) > 5:
                self._under_way.popleft().wait()
        if "ranges" in self._names and number % 13 == 0:
            self._blocks.close()
            self._blocks.enter_context(torch.profiler.record_function(f"thirteen steps from {number}"))
        if "workers" in self._names and number % 40 == 0:
            for (item,) in DataLoader(TensorDataset(torch.ones(4, 8)), num_workers=2, batch_size=2):
                item.add_(1)
        if "profiler" in self._names:
            self._profile_now_and_then(number)

    def _profile_now_and_then(self, number: int) -> None:
        if number % 50 == 30:
            self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self._profile.start()
        elif self._profile is not None and number % 50 == 33:
            # A profiler that is stopped right behind a backward of DDP ends processes by itself: gloo's thread may
            # still end the event of a call in what is freed (torch 2.13 alone: within 500 windows, 3 jobs of 3).
            torch._C._autograd._enable_record_function(False)  # noqa: SLF001 - no public name
        elif self._profile is not None and number % 50 == 38:
            self._end_profile()
            assert len(self._profile.events()) > 0
            self._profile = None

    def _end_profile(self) -> None:
        self._profile.stop()
        torch._C._autograd._enable_record_function(True)  # noqa: SLF001 - no public name

    def stop(self) -> None:
        """Stop all activities."""
        if self._profile is not None:
            self._end_profile()
        self._blocks.close()
        while self._under_way:
            self._under_way.popleft().wait()
        self._over.set()
        for thread in self._threads:
            thread.join()


class Training:
    """A model with its training step, in one of the styles."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        width, depth = (256, 30) if args.cuda else (64, 6)
        self._batch = (8, width)
        self._device = device
        self.model: Any = nn.Sequential(
            *[nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)]
        ).to(device)
        self.style = args.style
        if self.style == "fsdp2":
            for block in self.model:
                fully_shard(block)
            fully_shard(self.model)
        elif self.style == "ddp":
            self.model = DistributedDataParallel(self.model)
        elif self.style == "hooks":
            for parameter in self.model.parameters():
                single = torch.optim.AdamW([parameter], lr=1e-3)
                parameter.register_post_accumulate_grad_hook(lambda one, single=single: self._stepped(one, single))
        if self.style != "hooks":
            self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, capturable=self.style == "graph")
        self._run: Any = self._plain
        if self.style == "compiled":
            self._run = torch.compile(self._plain, backend=args.compiler)
        if self.style == "graph":
            self._input = torch.randn(self._batch, device=device)
            self._graph = self._captured()
            self._run = self._replayed

    @staticmethod
    def _stepped(parameter: Any, single: torch.optim.Optimizer) -> None:
        dist.all_reduce(parameter.grad)
        single.step()
        single.zero_grad()

    def _plain(self, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model(batch).pow(2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.style != "hooks":
            self._update()
        return loss

    # Within the compiled region, but not compiled: else the step's end would not be seen.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _captured(self) -> Any:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._plain(self._input)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._loss = self._plain(self._input)
        return graph

    def _replayed(self, batch: torch.Tensor) -> torch.Tensor:
        self._input.copy_(batch)
        self._graph.replay()
        return self._loss

    def step(self) -> torch.Tensor:
        """Run one step."""
        loss: torch.Tensor = self._run(torch.randn(self._batch, device=self._device))
        return loss


def main() -> None:
    """Train, and write the loss of every step."""
    args = parsed()
    local, attempt = int(os.environ["LOCAL_RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    device = torch.device("cuda", local % torch.cuda.device_count()) if args.cuda else torch.device("cpu")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    if args.cuda:
        torch.cuda.set_device(device)
        if int(os.environ["LOCAL_WORLD_SIZE"]) > torch.cuda.device_count():
            # NCCL lets ranks of several hosts share a device, and takes these for such.
            os.environ |= {"NCCL_HOSTID": os.environ["RANK"], "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    prefixed = dist.PrefixStore(f"job/{attempt}", store)
    dist.init_process_group("nccl" if args.cuda else "gloo", store=prefixed, rank=rank, world_size=world)
    training = Training(args, device)
    beside = Beside(args.beside, training.model)
    beside.start()
    losses: list[str] = []
    last = random.Random(args.seed).uniform(0.3, 0.95) * args.seconds
    begun = time.monotonic()
    flag = torch.zeros(1, device=device)
    while True:
        losses.append(float(training.step().item()).hex())
        beside.step(len(losses))
        time.sleep(args.step_ms / 1e3)
        elapsed = time.monotonic() - begun
        if rank == 1 and elapsed > last and not (args.end == "restart" and attempt):
            misbehave(args.end)
        flag.fill_(float(elapsed > args.seconds or (args.steps and len(losses) >= args.steps)))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item():
            break
    beside.stop()
    if args.losses is not None:
        (args.losses / f"{rank}.json").write_text(json.dumps(losses))
    if rank == 0:
        print(f"steps {len(losses)} loss {losses[-1]}", flush=True)
    # gloo resets a peer that is still reading when the other side closes: nobody leaves before all have come this far.
    store.set(f"left/{attempt}/{rank}", "")
    store.wait([f"left/{attempt}/{other}" for other in range(world)])
    del training, beside  # before its process group: see README.md, many windows
    dist.destroy_process_group()


def misbehave(end: str) -> None:
    """End this rank in the requested way."""
    if end in ("kill", "restart"):
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "raise":
        raise RuntimeError("planted")
    if end == "exit":
        os._exit(7)


if __name__ == "__main__":
    main()
