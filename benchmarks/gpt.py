"""A GPT trained with DDP or FSDP2, with one fault to order: what the benchmarks and the GPU tests launch.

    rankscope run --nproc-per-node 2 benchmarks/gpt.py --parallel fsdp2 --fault extra_compute

It prints the median step time of rank 0, as the host sees it, over the steps after the first ten.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

FAULTS = ("none", "input_stall", "extra_compute", "host_pause", "uneven_work", "h2d_copy", "crash")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--parallel", choices=("ddp", "fsdp2"), default="ddp")
parser.add_argument("--fault", choices=FAULTS, default="none")
parser.add_argument("--bad-rank", type=int, default=1)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--sequence", type=int, default=1024)
parser.add_argument("--vocabulary", type=int, default=16384)
parser.add_argument("--size", type=float, default=1.0, help="scales the fault: 60 ms stall, 50 ms pause, 120 products")
args = parser.parse_args()

cuda = torch.cuda.is_available()
rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo", **({"device_id": device} if cuda else {}))
fault = args.fault if rank == args.bad_rank else "none"


class Tokens(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(rank)
        length = args.sequence * (2 if fault == "uneven_work" else 1)
        while True:
            if fault == "input_stall":
                time.sleep(0.06 * args.size)
            yield torch.randint(0, args.vocabulary, (args.batch, length + 1), generator=generator)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(args.vocabulary, args.width)
        self.blocks = nn.ModuleList(Block(args.width, max(1, args.width // 64)) for _ in range(args.layers))
        self.head = nn.Linear(args.width, args.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = GPT().to(device)
if args.parallel == "ddp":
    model = DistributedDataParallel(
        model.to(torch.bfloat16) if cuda else model, device_ids=[local_rank] if cuda else None
    )
else:
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if cuda else MixedPrecisionPolicy()
    )
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
pageable = torch.randn(16 * 2**20)  # 64 MiB
times = []
for step, batch in enumerate(DataLoader(Tokens(), batch_size=None, pin_memory=cuda)):
    if step == args.steps:
        break
    began = time.perf_counter()
    tokens = batch.to(device, non_blocking=True)
    if fault == "h2d_copy":
        for _ in range(int(8 * args.size)):
            pageable.to(device)
    loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())
    if fault == "host_pause":
        time.sleep(0.05 * args.size)
    if fault == "crash" and step == 15:
        raise RuntimeError("planted failure")
    if fault == "extra_compute":
        side = 4096 if cuda else 256
        extra = torch.randn(side, side, device=device, dtype=torch.bfloat16 if cuda else torch.float32)
        for _ in range(int(120 * args.size)):
            extra = extra @ extra * 1e-3
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    times.append(time.perf_counter() - began)
if cuda:
    torch.cuda.synchronize()
if rank == 0:
    print(f"median step {1e3 * statistics.median(times[10:]):.1f} ms, loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
