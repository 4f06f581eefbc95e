"""A job that trains until a file appears. A rank can be slow, fork, profile itself, or exit within a window."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rankscope

parser = argparse.ArgumentParser()
parser.add_argument("--until", type=Path, required=True)
parser.add_argument("--step-ms", type=float, default=10.0)
parser.add_argument("--slow-rank", type=int, default=-1)
parser.add_argument("--fork", action="store_true", help="fork a child that ends normally, before anything else")
parser.add_argument("--capture-when", type=Path, help="the last rank asks for a recording when this file is there")
parser.add_argument("--profile-while", metavar="PATTERN", help="use torch.profiler when such a file is in the spool")
parser.add_argument("--profile-s", type=float, default=0.0, help="for so long at least")
parser.add_argument("--end-while", metavar="PATTERN", help="end, with code 5, when such a file is in the spool")
parser.add_argument("--by-signal", action="store_true", help="end by SIGTERM instead")
args = parser.parse_args()

if args.fork:
    child = os.fork()
    if child == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
spool = Path(os.environ.get("KINETO_ONDEMAND_TRACE_DIR", "/nowhere"))
model = DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
deadline = time.monotonic() + 400  # for a test that has ended without it
profiles, profiled = False, False
asks = args.capture_when is not None and rank == dist.get_world_size() - 1


def there(pattern):
    return pattern is not None and any(spool.glob(pattern))


for _ in range(1_000_000):
    loss = model(torch.randn(8, 64)).pow(2).mean()
    loss.backward()
    time.sleep(args.step_ms / 1e3 * (5 if rank == args.slow_rank else 1))
    if profiles and not profiled:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            enough = time.monotonic() + args.profile_s
            model(torch.randn(8, 64))
            while time.monotonic() < enough:
                model(torch.randn(8, 64))
                time.sleep(0.01)
        profiled = True
        print(f"rank {rank}: own profiler saw {len(own.events())} events", flush=True)
    optimizer.step()
    optimizer.zero_grad()
    if asks and args.capture_when.exists():
        asks = not rankscope.capture(steps=3, reason="loss spike")
    # Together: what one rank has seen the other may look for in vain, a step and a gathered file later.
    over = args.until.exists() or time.monotonic() > deadline
    seen = torch.tensor([float(f) for f in (over, there(args.end_while), there(args.profile_while))])
    dist.all_reduce(seen, op=dist.ReduceOp.MAX)
    over, ends, profiles = seen.tolist()
    if ends:
        if args.by_signal:
            os.kill(os.getpid(), signal.SIGTERM)
        sys.exit(5)
    if over:
        break
# A reducer that outlives its group ends gloo's threads while it holds Python's lock, for which they may wait (torch
# 2.13).
del model
dist.destroy_process_group()
