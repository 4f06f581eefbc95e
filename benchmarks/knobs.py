"""Advice that was followed: what the report says a knob gains, and what turning it gains.

    python benchmarks/knobs.py [--ranks 2] [--only workers]

Each job trains twice in one process, with the knob as it was and turned (benchmarks/knob.py); a window of three steps
lies in the first training. "said" is the gain of that action in the report, per step: "<=" is a bound. "measured" is
the difference of the medians of unrecorded steps, with the quartiles of the steps as its scatter. It holds where the
measured gain is no larger than what was said (scatter allowed for) and more than a tenth of it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import quantiles

import torch
from knob import ON_CPUS, ON_DEVICES, Knob
from launching import RANKSCOPE, launch

from rankscope.records.codec import from_json
from rankscope.records.report import Action, ClusterReport
from rankscope.rundir.layout import RunDir

JOB = Path(__file__).parent / "knob.py"
BEFORE = 25
"""Steps of a training that do not count: caches fill, compilers compile, and the window is recorded."""
SETTINGS = (
    "schedule.skip_first=8",
    "schedule.wait=1",
    "schedule.warmup=2",
    "schedule.active=3",
    "capture.record_shapes=true",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="knobs whose name holds this text")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each job")
    arguments = parser.parse_args()
    knobs = ON_DEVICES if torch.cuda.is_available() else ON_CPUS
    print(f"{'knob':30} {'step, ms':>9} {'said, ms':>16} {'measured, ms':>18}  holds")
    held = asked = 0
    for name, knob in knobs.items():
        if arguments.only in name:
            asked += 1
            held += one(name, knob, arguments)
    print(f"{held} of {asked}")


def one(name: str, knob: Knob, arguments: argparse.Namespace) -> bool:
    """Run a job and print its line."""
    with tempfile.TemporaryDirectory() as folder:
        run, times = RunDir(Path(folder) / "run"), Path(folder) / "times.json"
        settings = [word for s in (f"run.dir={run.path}", *SETTINGS) for word in ("-S", s)]
        code, output = launch(
            RANKSCOPE,
            [*settings, str(JOB), name, "--times", str(times)],
            ranks=arguments.ranks,
            seconds=arguments.seconds,
        )
        if code:
            print(f"{name:30} exit code {code}\n{output[-1500:]}", flush=True)
            return False
        report = from_json(ClusterReport, (run.report / "report.json").read_bytes())
        before, after = (quartiles(steps[BEFORE:]) for steps in json.loads(times.read_text()))
    action = next((a for a in report.actions if a.code == knob.code), None)
    gain = before[1] - after[1]
    scatter = (before[2] - before[0] + after[2] - after[0]) / 2
    holds = action is not None and action.saves_ms is not None
    if holds:
        holds = 0.1 * action.saves_ms < gain <= action.saves_ms + (action.error_ms or 0.0) + scatter
    words = "yes" if holds else "NO"
    if action is None:
        words += f"  said instead: {', '.join(a.code for a in report.actions) or report.verdict.kind}"
    print(f"{name:30} {before[1]:9.1f} {said(action):>16} {gain:9.1f} ± {scatter:6.1f}  {words}", flush=True)
    return holds


def said(action: Action | None) -> str:
    """What an action gains, in its report's words."""
    if action is None or action.saves_ms is None:
        return "-"
    return f"<= {action.saves_ms:.1f}" if action.kind == "bound" else f"{action.saves_ms:.1f} ± {action.error_ms:.1f}"


def quartiles(steps: list[float]) -> list[float]:
    """First quartile, median, third."""
    return quantiles(steps, n=4)


if __name__ == "__main__":
    main()
