"""Overhead of recording: the same job without rankscope, with it but without a window, and with a window.

Every mode runs twice, in both orders, in one process tree after another; the job notes its own step times.

    python benchmarks/overhead.py --nproc-per-node 2                      # on GPUs
    python benchmarks/overhead.py --nproc-per-node 2 --cpu --steps 400    # anywhere
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
RANKSCOPE = [sys.executable, "-m", "rankscope", "run", "-S", "analysis.enabled=false"]
NEVER = ["-S", "schedule.skip_first=1000000"]
SETTLED = 40
"""Number of first steps that are not counted: compilation of kernels, allocator, first collectives."""


def modes(window: int, first: int) -> dict[str, list[str]]:
    """Name -> the command before the script."""
    schedule = ["-S", f"schedule.skip_first={first}", "-S", f"schedule.active={window}"]
    return {
        "torchrun": TORCHRUN,
        "armed, no window": [*RANKSCOPE, *NEVER],
        "window": [*RANKSCOPE, *schedule],
    }


def job(args: argparse.Namespace) -> None:
    """Train and write this rank's step times (seconds)."""
    import torch
    import torch.distributed as dist
    from gpt import GPT
    from torch.distributed.fsdp import fully_shard
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel

    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu") if args.cpu else torch.device("cuda", local)
    if not args.cpu:
        torch.cuda.set_device(local)
    dist.init_process_group("gloo" if args.cpu else "nccl")
    torch.manual_seed(0)
    width, layers, length, words = (128, 4, 64, 512) if args.cpu else (args.width, 8, 1024, 16384)
    model: Any = GPT(words, width, layers).to(device)
    if args.parallel == "fsdp2":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model, device_ids=None if args.cpu else [local])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(words, (args.batch, length + 1), device=device)
    times = []
    for _ in range(args.steps):
        begun = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=not args.cpu):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if not args.cpu:
            torch.cuda.synchronize()  # a step ends when the device is done, also in the bare run
        times.append(time.perf_counter() - begun)
    (args.times / f"{dist.get_rank()}.json").write_text(json.dumps({"times": times, "loss": float(loss.item()).hex()}))
    del model  # before its process group: see README.md, many windows
    dist.destroy_process_group()


def measure(name: str, before: list[str], args: argparse.Namespace, passed: list[str]) -> dict[str, Any]:
    """Run one mode; return the step times of rank 0 and numbers from the records."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        where = [] if before is TORCHRUN else ["-S", f"run.dir={run}"]
        command = [*before, *where, "--nproc-per-node", str(args.nproc_per_node), str(HERE), "--job", *passed]
        done = subprocess.run([*command, "--times", folder], check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{name} ended with {done.returncode}\n{done.stderr[-3000:]}")
        noted = json.loads((Path(folder) / "0.json").read_text())
        manifest = json.loads((run / "run.json").read_text()) if where else {"windows": []}
    times = [seconds * 1e3 for seconds in noted["times"]]
    records = manifest["windows"][0]["records"] if manifest["windows"] else []
    usable = [r for r in records if r["trace"]]
    first, last = (usable[0]["first_step"], usable[0]["last_step"]) if usable else (len(times), len(times))
    begins = min(first - 3, len(times))
    before_ms = times[SETTLED:begins]
    median = statistics.median(before_ms)
    inside, after = times[first : last + 1], times[last + 1 :]
    around = times[begins:]
    return {
        "mode": name,
        "loss": noted["loss"],
        "steps": len(before_ms),
        "median": median,
        "longest": max(around, default=max(before_ms)),
        "inside": statistics.median(inside) if inside else None,
        # Beyond what recording itself takes: every recorded step is allowed the median recorded step.
        "lost": _lost(times[begins : last + 1], statistics.median(inside), after, median) if usable else None,
        "residue": statistics.median(after[len(after) // 3 :]) / median if after else None,
        "after": statistics.median(after[len(after) // 3 :]) if after else None,
        "backend": ", ".join(sorted({r["capture"] for r in usable})),
        "traces": f"{len(usable)} of {len(records)}",
        "megabytes": max((r["trace_bytes"] or 0 for r in usable), default=0) / 1e6,
        "around": [round(ms, 1) for ms in times[begins : begins + 120]] if usable else [],
    }


def _lost(until: list[float], recorded: float, after: list[float], median: float) -> float:
    excess = sum(max(0.0, ms - recorded) for ms in until) + sum(max(0.0, ms - 1.5 * median) for ms in after)
    return excess / median


def main() -> None:
    """Measure every mode in both orders and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc-per-node", type=int, default=2)
    parser.add_argument("--parallel", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--cpu", action="store_true", help="gloo and a tiny model")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--first", type=int, default=360, help="where the window opens")
    parser.add_argument("--window", type=int, default=20, help="recorded steps")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=1, help="each is once in this order and once in the other")
    parser.add_argument("--only", nargs="+", default=[""], help="modes whose name holds one of these")
    parser.add_argument("--times", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(args)
        return
    shared = ("parallel", "steps", "batch", "width")
    passed = [w for name in shared for w in (f"--{name}", str(getattr(args, name)))] + ["--cpu"] * args.cpu
    offered = modes(args.window, args.first).items()
    ways = [(name, before) for name, before in offered if any(word in name for word in args.only)]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in ways}
    for _ in range(args.rounds):
        for name, before in [*ways, *reversed(ways)]:
            results[name].append(measure(name, before, args, passed))
            print(json.dumps(results[name][-1]), file=sys.stderr, flush=True)
    show(results, args)


def show(results: dict[str, list[dict[str, Any]]], args: argparse.Namespace) -> None:
    """Return the table. A column has the numbers of every run of a mode."""
    print(f"{args.parallel}, {args.nproc_per_node} ranks, {args.steps} steps, window of {args.window} steps")
    print(f"losses bit-identical: {len({r['loss'] for runs in results.values() for r in runs}) == 1}\n")
    columns = {
        "median ms": ("median", "{:.2f}"),
        "recorded ms": ("inside", "{:.1f}"),
        "longest ms": ("longest", "{:.0f}"),
        "steps lost": ("lost", "{:.1f}"),
        "after ms": ("after", "{:.2f}"),
        "traces": ("traces", "{}"),
    }
    print(f"{'':18}" + "".join(f"{title:>18}" for title in columns) + f"{'to bare':>10}")
    bare = statistics.median(r["median"] for r in results.get("torchrun", next(iter(results.values()))))
    for name, runs in results.items():
        cells = [
            " ".join(form.format(r[key]) if r[key] is not None else "-" for r in runs) for key, form in columns.values()
        ]
        ratio = statistics.median(r["median"] for r in runs) / bare
        print(f"{name:18}" + "".join(f"{cell:>18}" for cell in cells) + f"{ratio:>10.4f}")
    print(
        "\nmedian, to bare: steps before the window. steps lost: time above the recorded median in the warm-up and the"
        "\nwindow, and above 1.5 medians after it, in steps. after: median when it has been closed for a while."
    )


if __name__ == "__main__":
    main()
