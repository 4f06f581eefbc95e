"""Real gloo jobs with a pattern planted: what does the log of all steps say, of whom, and from which step on?

    python benchmarks/between.py OUT [--runs 10] [--ranks 2] [--steps 600] [--ms 40] [--patterns burst,none]

Each job runs under ``rankscope run`` without a window. Its step logs are judged as a whole (``right``: the right ranks
are named; ``as such``: with the planted pattern), and again as they stood after every 50 steps: ``first said`` is the
first of these from which on the right ranks and no other are named. ``none+`` trains beside burning processes. What is
in OUT already is judged again and not launched.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path

from rankscope.between.judge import judge
from rankscope.between.step_logs import read_step_log
from rankscope.between.table import side_by_side
from rankscope.rundir.layout import RunDir

JOB = Path(__file__).parent.parent / "tests" / "dist" / "jobs" / "between.py"
PATTERNS = {
    "none": ("", ()),
    "none+": ("", ()),
    "burst": ("every", (1,)),
    "since": ("since", (1,)),
    "drift": ("drifting", (1,)),
    "spell": ("spell", (1,)),
    "turns": ("turns", (0, 1)),
    "evaluation": ("evaluation", ()),
    "checkpoint": ("checkpoint", (0,)),
}
"""Name -> the kind of the pattern that should be told, and its ranks. Evaluations and checkpoints accuse nobody."""
OCCASIONS = ("evaluation", "checkpoint")
BURN = "import os\np = os.getppid()\nwhile os.getppid() == p: sum(range(10_000))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--ms", type=float, default=40.0)
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    options = parser.parse_args()
    print(f"{'pattern':12} run  step ms  held ms  {'told':34} right  as such innocents first said")
    sums: Counter[str] = Counter()
    for run in range(options.runs):
        for pattern in options.patterns.split(","):
            line = _one(options, pattern, run, sums)
            print(f"{pattern:12} {run:3} {line}", flush=True)
    print(dict(sums))


def _one(options: argparse.Namespace, pattern: str, run: int, sums: Counter[str]) -> str:
    folder = RunDir(options.out / f"{pattern}_{run}")
    logs = folder.path.glob("attempt_0/pulse/*.gz")
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2 * pattern.endswith("+"))]
    try:
        if not any(logs):
            _launch(options, pattern.rstrip("+"), run, folder)
    finally:
        for process in burning:
            process.kill()
    times = {rank: read_step_log(folder.pulse(0, rank)) for rank in range(options.ranks)}
    verdict = judge(side_by_side(times))
    kind, ranks = PATTERNS[pattern]
    if pattern == "turns":
        ranks = tuple(range(options.ranks))
    told = "; ".join(f"{p.kind} {p.ranks or 'all'}" for p in verdict.patterns) or verdict.kind
    named = [p for p in verdict.patterns if tuple(sorted(p.ranks)) == ranks]
    found = [p for p in named if p.kind == kind]
    innocents = set(verdict.ranks) - set(() if kind in OCCASIONS else ranks)
    right = bool(named if kind and kind not in OCCASIONS else found) if kind else not verdict.patterns
    as_such = "yes" if found or not kind else "no"
    said = _first_said(times, set(ranks), options.steps) if kind and kind not in OCCASIONS else ""
    sums["right"] += right
    sums["told as such"] += as_such == "yes"
    sums["jobs"] += 1
    sums["innocents named"] += len(innocents)
    step, held = verdict.step_ms or 0.0, verdict.held_ms or 0.0
    return f"{step:8.1f} {held:8.1f}  {told:34} {'yes' if right else 'NO':6} {as_such:7} {len(innocents):9} {said}"


def _launch(options: argparse.Namespace, pattern: str, run: int, folder: RunDir) -> None:
    settings = [f"run.dir={folder.path}", "schedule.skip_first=1000000", "analysis.enabled=false", "live.mode=off"]
    flags = [word for setting in settings for word in ("-S", setting)]
    words = [
        sys.executable,
        "-m",
        "rankscope",
        "run",
        *flags,
        "--nproc-per-node",
        str(options.ranks),
        str(JOB),
        pattern,
    ]
    words += ["--steps", str(options.steps), "--ms", str(options.ms), "--seed", str(run)]
    subprocess.run(words, capture_output=True, check=True)


def _first_said(times, ranks: set[int], steps: int) -> str:
    first = None
    for end in range(150, steps + 1, 50):
        verdict = judge(side_by_side({rank: log.between(0, end) for rank, log in times.items()}))
        if set(verdict.ranks) != ranks:
            first = None
        elif first is None:
            first = end
    return f"step {first}" if first is not None else "never"


if __name__ == "__main__":
    main()
