"""Requests to a running job at random times: whether all ranks answer, and with the same steps.

python benchmarks/asking.py --requests 100                      # four gloo ranks, one of them five times slower
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__)
RANKSCOPE = [sys.executable, "-m", "rankscope"]
QUIET = ["-S", "schedule.skip_first=1000000", "-S", "analysis.enabled=false"]
STEP_S, SLOW = 0.005, 5
"""Step time of most ranks, and the factor of the slow one."""


def job(until: Path) -> None:
    """Train until a file exists."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model: Any = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    over = torch.zeros(1)
    while not over.item():
        model(torch.randn(8, 64)).pow(2).mean().backward()
        time.sleep(STEP_S * (SLOW if dist.get_rank() == 2 else 1))
        optimizer.step()
        optimizer.zero_grad()
        over.fill_(float(until.exists()))
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
    del model  # before its process group: see README.md, many windows
    dist.destroy_process_group()


def main() -> None:
    """Start the job, request windows, end it, and compare the recorded steps of the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(args.job)
        return
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        run, until = Path(folder) / "run", Path(folder) / "until"
        ours = [*QUIET, "-S", f"run.dir={run}"]
        launched = subprocess.Popen(
            [
                *RANKSCOPE,
                "run",
                *ours,
                "--standalone",
                "--nproc-per-node",
                str(args.ranks),
                str(HERE),
                "--job",
                str(until),
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        while not list(run.glob("nodes/*.claim.json")):
            time.sleep(0.1)
        asked = []
        for _ in range(args.requests):
            time.sleep(chance.uniform(0, 0.5))
            asked.append(chance.randint(1, 4))
            subprocess.run(
                [*RANKSCOPE, "capture", str(run), "--steps", str(asked[-1]), "--timeout", "120"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        until.touch()
        code = launched.wait()
        windows = json.loads((run / "run.json").read_text())["windows"]
    agree, whole = 0, 0
    for steps, window in zip(asked, windows, strict=False):
        records = window["records"]
        ranges = Counter((record["first_step"], record["last_step"]) for record in records)
        whole += sum(record["status"] == "ok" and record["trace"] is not None for record in records)
        agree += len(records) == args.ranks and [last - first + 1 for first, last in ranges] == [steps]
    captures = Counter(record["capture"] for window in windows for record in window["records"])
    print(f"{args.requests} requests to {args.ranks} ranks, the job's exit code {code}, {len(windows)} windows")
    print(
        f"{agree} with the steps asked for, the same on all ranks; {whole} traces whole, recorded by {dict(captures)}"
    )


if __name__ == "__main__":
    main()
