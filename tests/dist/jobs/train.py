"""A small deterministic DDP job with optional faults. It prints its last loss as a hexadecimal float."""

import argparse
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import rankscope  # which does nothing in a process that is not recorded

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--fsdp", action="store_true")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--bad-rank", type=int, default=-1)
parser.add_argument("--input-ms", type=float, default=0.0, help="the bad rank's data loader sleeps so long per batch")
parser.add_argument("--pause-ms", type=float, default=0.0, help="the bad rank sleeps between forward and backward")
parser.add_argument("--raise-at", type=int, default=-1)
parser.add_argument("--kill-at", type=int, default=-1)
parser.add_argument("--first-attempt-only", action="store_true", help="raise or kill only before the first restart")
parser.add_argument("--exit-code", type=int, default=0)
parser.add_argument("--wait-for-signal-at", type=int, default=-1)
parser.add_argument("--own-profiler-at", type=int, default=-1)
args = parser.parse_args()

torch.set_num_threads(1)
# Each attempt under its own prefix: gloo may else find addresses of the attempt before (bare torchrun shows it too).
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
dist.init_process_group("gloo", store=dist.PrefixStore(f"job/{attempt}", store), rank=rank, world_size=world_size)
bad = rank == args.bad_rank
faulty = bad and not (args.first_attempt_only and attempt != "0")
torch.manual_seed(0)


class Batches(Dataset):
    def __len__(self):
        return args.steps * 8

    def __getitem__(self, index):
        if bad and args.input_ms:
            time.sleep(args.input_ms / 8e3)
        return torch.full((128,), float(index % 7))


model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(4)])
if args.fsdp:
    from torch.distributed.fsdp import fully_shard  # takes a second that the others need not wait for

    for block in model:
        fully_shard(block)
    fully_shard(model)
else:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
profiler = None


@rankscope.region("loss")
def loss_of(model, batch):
    with rankscope.region("model"):
        out = model(batch)
    return out.pow(2).mean()


rankscope.describe(tokens=8 * world_size)
for step, batch in enumerate(DataLoader(Batches(), batch_size=8, num_workers=args.workers)):
    if step == args.own_profiler_at:
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        profiler.start()
    loss = loss_of(model, batch)
    if step in (1, 8):
        rankscope.mark("checkpoint", gib=step / 2)
    if bad and args.pause_ms:
        time.sleep(args.pause_ms / 1e3)
    loss.backward()
    if faulty and step == args.raise_at:
        raise RuntimeError("planted failure")
    if faulty and step == args.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == args.wait_for_signal_at:
        print("waiting", flush=True)
        time.sleep(120)
    optimizer.step()
    optimizer.zero_grad()
    if profiler is not None and step == args.own_profiler_at + 2:
        profiler.stop()
        print(f"own profile: {len(profiler.events())} events", flush=True)
        profiler = None
value = loss.detach()
dist.all_reduce(value)
if rank == 0:
    print(f"loss {value.item().hex()}", flush=True)
# gloo resets a peer that is still reading when the other side closes: nobody leaves before all have come this far.
store.set(f"left/{attempt}/{rank}", "")
store.wait([f"left/{attempt}/{other}" for other in range(world_size)])
# A reducer that outlives its group ends gloo's threads while it holds Python's lock, for which they may wait (torch
# 2.13).
del model
dist.destroy_process_group()
sys.exit(args.exit_code)
