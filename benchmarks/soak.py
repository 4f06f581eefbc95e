"""Many windows in jobs that end in every way, with other activities that run operators.

Nothing crashes, hangs, is lost without a word, or computes something else.

    python benchmarks/soak.py --cpu --jobs 12 --at-once 2 --seconds 40              # anywhere
    python benchmarks/soak.py --jobs 16 --at-once 4 --seconds 60                    # on GPUs; one is enough
"""

from __future__ import annotations

import argparse
import contextlib
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

JOB = Path(__file__).with_name("busy.py")
BARE = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
OURS = [
    *(sys.executable, "-m", "rankscope", "run", "--standalone", "-S", "analysis.enabled=false"),
    *("-S", "schedule.skip_first=5", "-S", "schedule.warmup=1", "-S", "schedule.active=2", "-S", "schedule.every=6"),
    *("-S", "budget.windows=10000", "-S", "budget.step_pct=100", "-S", "budget.megabytes=100000"),
]
ENDS = ("plain", "plain", "raise", "kill", "restart", "terminate", "exit")
"""Normally; by an exception or SIGKILL on one rank; that and a restart; SIGTERM from outside; os._exit."""
STEP_MS = (1, 5, 20)
"""Sleep in each step; one with the shortest is some milliseconds long all the same."""
BESIDE = (
    ("threads", "checkpoint", "async", "ranges"),
    ("threads", "checkpoint", "workers"),
    ("threads", "profiler"),  # alone: the script's own profiler would meet the calls and blocks that it leaves open
)
STYLES_CPU = ("ddp", "hooks", "compiled", "fsdp2")
STYLES_GPU = ("ddp", "hooks", "compiled", "fsdp2", "graph")


@dataclass
class Outcome:
    """One job."""

    name: str
    end: str
    code: int | None
    hung: bool
    windows: int
    statuses: Counter[str]
    reasons: Counter[str]
    steps: int
    same_loss: bool | None
    seconds: float
    output: str

    @property
    def right(self) -> bool:
        """Return whether the job ended as without rankscope, and every missing trace has a reason."""
        expected = 0 if self.end in ("plain", "restart") else 1
        return self.code == expected and not self.hung and self.same_loss is not False and not self.statuses["lost"]


def run_one(number: int, args: argparse.Namespace) -> Outcome:
    """Run a job under rankscope and, if it ended normally, the same number of steps without it."""
    styles = args.styles or (STYLES_CPU if args.cpu else STYLES_GPU)
    style, end = styles[number % len(styles)], args.ends[number % len(args.ends)]
    step_ms = STEP_MS[(number // len(styles)) % len(STEP_MS)] if args.step_ms is None else args.step_ms
    beside = [name for name in BESIDE[number % len(BESIDE)] if not (name == "profiler" and style == "graph")]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["--style", style, "--step-ms", str(step_ms), "--beside", *beside, "--losses", folder]
        words += ["--seed", str(number), *([] if args.cpu else ["--cuda"])]
        flags = ["--nproc-per-node", "2", *(["--max-restarts", "1"] if end == "restart" else [])]
        ours = [*OURS, "-S", f"run.dir={run}", *flags, str(JOB), *words, "--end", end, "--seconds", str(args.seconds)]
        begun = time.monotonic()
        code, hung, output = launch(ours, number, args, terminate=run if end == "terminate" else None)
        seconds = time.monotonic() - begun
        windows, records = recorded(run)
        statuses = Counter(r["status"] for r in records)
        statuses["lost"] = sum(lost(r, run) for r in records)
        reasons = Counter((r["reason"] or "")[:70] for r in records if r["reason"])
        losses, same, steps = Path(folder) / "0.json", None, 0
        if losses.exists() and end == "plain":
            noted = json.loads(losses.read_text())
            steps = len(noted)
            losses.unlink()
            launch([*BARE, "--nproc-per-node", "2", str(JOB), *words, "--steps", str(steps)], number, args)
            same = losses.exists() and json.loads(losses.read_text()) == noted
    name = f"{style}, {step_ms:g} ms, {' '.join(beside)}"
    return Outcome(name, end, code, hung, windows, statuses, reasons, steps, same, seconds, output)


def launch(
    command: list[str], number: int, args: argparse.Namespace, *, terminate: Path | None = None
) -> tuple[int | None, bool, str]:
    """Exit code, whether it hung, and what it said. ``terminate``: some time after the first window of this run."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    if args.guard:
        environ["GLIBC_TUNABLES"] = "glibc.malloc.mmap_threshold=1000"
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=environ
    )
    if terminate is not None:
        while process.poll() is None and not list(terminate.glob("attempt_0/window_000/*")):
            time.sleep(0.1)
        time.sleep(random.Random(number).uniform(0.1, 0.6) * args.seconds)
        process.terminate()
    try:
        output, _ = process.communicate(timeout=4 * args.seconds + 120)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, True, output
    return process.returncode, False, output


def recorded(run: Path) -> tuple[int, list[dict[str, Any]]]:
    """Number of windows, and their records."""
    if not (run / "run.json").exists():
        return 0, []
    windows = json.loads((run / "run.json").read_text())["windows"]
    return len(windows), [record for window in windows for record in window["records"]]


def lost(record: dict[str, Any], run: Path) -> bool:
    """Without a trace, and without a word why."""
    if record["trace"] is None:
        return not record["reason"]
    return not list(run.glob(f"attempt_{record['attempt']}/window_{record['window']:03d}/{record['trace']}"))


def main() -> None:
    """Run the jobs in parallel, and print their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="number of the first job, which says what it is like")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="how long each job trains")
    parser.add_argument("--ends", nargs="+", default=ENDS, choices=sorted(set(ENDS)))
    parser.add_argument("--styles", nargs="+", choices=STYLES_GPU)
    parser.add_argument("--step-ms", type=float, help="the same in all jobs")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--guard", action="store_true", help="a write into freed blocks ends the job (glibc)")
    args = parser.parse_args()
    with ThreadPoolExecutor(args.at_once) as pool:
        done = list(pool.map(lambda number: run_one(number, args), range(args.first, args.first + args.jobs)))
    for one in done:
        losses = {None: "-", True: "same", False: "DIFFER"}[one.same_loss]
        print(
            f"{'right' if one.right else 'WRONG':6}{one.name:52}{one.end:10}"
            f"{'HUNG' if one.hung else f'exit {one.code}':8}"
            f"{one.seconds:4.0f} s {one.windows:4} windows {dict(one.statuses)} losses {losses} ({one.steps} steps) "
            f"{dict(one.reasons)}"
        )
        if not one.right:
            print(one.output[-6000:])
    wrong = sum(not one.right for one in done)
    print(
        f"{len(done)} jobs, {sum(o.windows for o in done)} windows, {sum(o.statuses['ok'] for o in done)} traces ok, "
        f"{sum(o.statuses['lost'] for o in done)} lost without a word, {wrong} jobs not as they should be"
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
