"""Many windows of libkineto's own capture in jobs that end in every way: nothing hangs, is lost without a word, or
computes something else.

    python benchmarks/soak.py --jobs 9 --seconds 150               # on GPUs
    python benchmarks/soak.py --jobs 2 --seconds 60 --cpu
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__)
BARE = [sys.executable, "-m", "torch.distributed.run"]
OURS = [
    *(sys.executable, "-m", "rankscope", "run", "-S", "analysis.enabled=false"),
    *("-S", "schedule.skip_first=5", "-S", "schedule.warmup=1", "-S", "schedule.active=3", "-S", "schedule.every=7"),
    *("-S", "budget.windows=100000", "-S", "budget.step_pct=100", "-S", "budget.megabytes=100000"),
]
ENDS = ("plain", "plain", "raise", "kill", "restart", "terminate", "exit")
"""Normally; by an exception or SIGKILL on one rank; that and a restart; SIGTERM from outside; os._exit."""


def job(args: argparse.Namespace) -> None:
    """Train for so many seconds; write the loss of every step."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    local, attempt = int(os.environ["LOCAL_RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    device = torch.device("cpu") if args.cpu else torch.device("cuda", local % torch.cuda.device_count())
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    if not args.cpu:
        torch.cuda.set_device(device)
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.PrefixStore(f"job/{attempt}", store)
    dist.init_process_group("gloo" if args.cpu else "nccl", store=store, rank=rank, world_size=world)
    # On a GPU many small kernels and no pause: some thread is inside a call to the device whatever libkineto does.
    width, depth, pause_s = (64, 6, 0.003) if args.cpu else (256, 30, 0.0)
    model: Any = nn.Sequential(
        *[nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)]
    )
    model = model.to(device)
    if args.parallel == "fsdp2":
        for block in model:
            fully_shard(block)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, chance = [], random.Random(args.seed)
    last = chance.uniform(0.3, 0.95) * args.seconds
    begun = time.monotonic()
    flag = torch.zeros(1, device=device)
    while True:
        batch = torch.randn(8, width, device=device, generator=None)
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        time.sleep(pause_s)
        elapsed = time.monotonic() - begun
        bad = rank == 1 and elapsed > last and not (args.end == "restart" and attempt)
        if bad and args.end in ("kill", "restart"):
            os.kill(os.getpid(), signal.SIGKILL)
        if bad and args.end == "raise":
            raise RuntimeError("planted")
        if bad and args.end == "exit":
            os._exit(7)
        flag.fill_(float(elapsed > args.seconds or (args.steps and len(losses) >= args.steps)))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item():
            break
    Path(args.losses).joinpath(f"{rank}.json").write_text(json.dumps(losses))
    del model  # before its process group: see README.md, many windows
    dist.destroy_process_group()


@dataclass
class Outcome:
    """One job."""

    end: str
    parallel: str
    code: int | None
    hung: bool
    windows: int
    statuses: Counter[str]
    reasons: Counter[str]
    steps: int
    same_loss: bool | None
    seconds: float
    stderr: str


def run_one(number: int, args: argparse.Namespace) -> Outcome:
    """Run a job under us and, when it ended normally, as many steps bare."""
    end = args.ends[number % len(args.ends)]
    parallel = ("ddp", "fsdp2")[number % 2]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["--job", "--end", end, "--parallel", parallel, "--seconds", str(args.seconds), "--seed", str(number)]
        words += ["--losses", folder, *["--cpu"] * args.cpu]
        flags = ["--nproc-per-node", "2", *(["--max-restarts", "1"] if end == "restart" else [])]
        ours = [*OURS, "-S", f"capture.backend={args.backend}", "-S", f"run.dir={run}"]
        begun = time.monotonic()
        process = subprocess.Popen(
            [*ours, *flags, "--master-port", str(29600 + number), str(HERE), *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        if end == "terminate":
            time.sleep(random.Random(number).uniform(0.4, 0.9) * args.seconds)
            process.terminate()
        hung = False
        try:
            _, stderr = process.communicate(timeout=2 * args.seconds + 120)
        except subprocess.TimeoutExpired:
            hung = True
            subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
            _, stderr = process.communicate()
        seconds = time.monotonic() - begun
        records = []
        if (run / "run.json").exists():
            windows = json.loads((run / "run.json").read_text())["windows"]
            records = [record for window in windows for record in window["records"]]
        else:
            windows = []
        silent = [r for r in records if r["trace"] is None and not r["reason"]]
        missing = [
            r
            for r in records
            if r["trace"] and not list(run.glob(f"attempt_{r['attempt']}/window_{r['window']:03d}/{r['trace']}"))
        ]
        statuses = Counter(r["status"] for r in records)
        statuses["lost without a word"] = len(silent) + len(missing)
        losses = Path(folder) / "0.json"
        same, steps = None, 0
        if losses.exists() and end == "plain":
            noted = json.loads(losses.read_text())
            steps = len(noted)
            bare = [
                *BARE,
                "--nproc-per-node",
                "2",
                "--master-port",
                str(29700 + number),
                str(HERE),
                *words,
                "--steps",
                str(steps),
            ]
            bare[bare.index("--seconds") + 1] = "100000"
            losses.unlink()
            subprocess.run(bare, check=False, capture_output=True)
            same = losses.exists() and json.loads(losses.read_text()) == noted
        reasons = Counter((r["reason"] or "")[:70] for r in records if r["reason"])
    return Outcome(
        end, parallel, process.returncode, hung, len(windows), statuses, reasons, steps, same, seconds, stderr
    )


def main() -> None:
    """Run the jobs side by side and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=120, help="how long each job trains")
    parser.add_argument("--ends", nargs="+", default=ENDS, choices=sorted(set(ENDS)))
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--backend", default="kineto", help="kineto_alone with torch before 2.13")
    for name in ("--job", "--end", "--parallel", "--losses"):
        parser.add_argument(name, help=argparse.SUPPRESS, **({"action": "store_true"} if name == "--job" else {}))  # type: ignore[arg-type]
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(args)
        return
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with ThreadPoolExecutor(args.jobs) as pool:
        done = list(pool.map(lambda number: run_one(number, args), range(args.jobs)))
    for one in done:
        losses = {None: "-", True: "same", False: "DIFFER"}[one.same_loss]
        print(
            f"{one.parallel:6}{one.end:10}{'HUNG' if one.hung else f'exit {one.code}':8}{one.seconds:4.0f} s  "
            f"{one.windows:3} windows {dict(one.statuses)}  losses {losses} ({one.steps} steps)  {dict(one.reasons)}"
        )
        if one.code != (one.end not in ("plain", "restart")) or one.same_loss is False:
            print(one.stderr[-6000:])
    print(
        f"{sum(o.windows for o in done)} windows, {sum(o.statuses['ok'] for o in done)} traces ok, "
        f"{sum(o.statuses['lost without a word'] for o in done)} lost without a word, {sum(o.hung for o in done)} hung"
    )


if __name__ == "__main__":
    main()
