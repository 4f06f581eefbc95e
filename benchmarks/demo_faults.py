"""Precision and recall over the faults of `rankscope demo`, each launched several times.

    python benchmarks/demo_faults.py --times 3
    python benchmarks/demo_faults.py --times 3 --ranks 4 --faults input_stall,turns

One line a fault: how many runs, what was named in how many of them, and the median of the claimed costs. The bad rank
changes from run to run. Run it on a machine that does nothing else: a neighbour that slows a rank is found too.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rankscope.demo.faults import FAULTS
from rankscope.records.codec import from_json
from rankscope.records.report import ClusterReport

WIDTH = (16, 6, 42, 10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--faults", help="names, joined by commas (default: all that this machine can plant)")
    arguments = parser.parse_args()
    names = arguments.faults.split(",") if arguments.faults else list(FAULTS)
    due = named = right = quiet = alarms = told_due = told = 0
    wrong: list[str] = []
    row("planted", "runs", "named (findings where nobody is to blame)", "cost ms")
    for name in names:
        fault = FAULTS[name]
        lacking = fault.lacking(arguments.ranks)
        if lacking is not None:
            print(f"{name}: left out, needs {lacking}")
            continue
        seen: Counter[str] = Counter()
        costs: list[float] = []
        for turn in range(arguments.times):
            bad = turn % arguments.ranks
            report = launch(name, arguments.ranks, bad)
            verdict, stragglers = report.verdict, fault.stragglers(arguments.ranks, bad)
            kinds = sorted({f.kind for f in report.findings})
            if stragglers and verdict.kind == "contended":
                seen["machine busy"] += 1  # no verdict on a rank, and no wrong one
                continue
            good = len(set(verdict.ranks) & set(stragglers)) if verdict.cause == fault.cause else 0
            due, named, right = due + len(stragglers), named + len(verdict.ranks), right + good
            what = verdict.cause if verdict.ranks else f"nobody ({', '.join(kinds)})" if kinds else "nobody"
            if stragglers:
                others = set(verdict.ranks) - set(stragglers)
                what = f"{what}{'' if good == len(stragglers) and not others else ', wrong'}"
                costs += [] if verdict.cost_ms_per_step is None else [verdict.cost_ms_per_step]
            else:
                quiet, alarms = quiet + 1, alarms + bool(verdict.ranks)
                told_due, told = told_due + (fault.cause is not None), told + (fault.cause in kinds)
            if sorted(verdict.ranks) != stragglers or (fault.cause not in (None, verdict.cause, *kinds)):
                wrong.append(f"{name}, bad rank {bad}: {verdict.sentence} {kinds}")
            seen[str(what)] += 1
        summary = ", ".join(f"{count} {what}" for what, count in seen.most_common())
        row(name, sum(seen.values()), summary, f"{statistics.median(costs):.1f}" if costs else "-")
    print(
        f"\nranks due with their cause: {due}; named: {named}; right: {right}; precision {share(right, named)}, "
        f"recall {share(right, due)}\nruns without a straggler: {quiet}; false alarms: {alarms}; "
        f"job-wide findings {told} of {told_due}"
    )
    for line in wrong:
        print("WRONG", line)
    return 1 if wrong else 0


def launch(name: str, ranks: int, bad: int) -> ClusterReport:
    """Run the demo once, as a user starts it."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["demo", "--fault", name, "--ranks", ranks, "--bad-rank", bad, "-S", f"run.dir={run}"]
        command = [sys.executable, "-m", "rankscope", *map(str, words), "-S", "analysis.hta=false"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        return from_json(ClusterReport, (run / "report" / "report.json").read_bytes())


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def row(*cells: object) -> None:
    print(" ".join(str(c).ljust(w) for c, w in zip(cells, WIDTH, strict=True)).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
