"""Advice that was followed: what the report says a knob gains, and what turning it gains.

    python benchmarks/knobs.py [--ranks 2] [--only workers] [--pairs 3]

Each job trains in turns in one process, with the knob as it was and turned (benchmarks/knob.py); a window of three
steps lies in the first training. "said" is the gain of that action in the report, per step: "<=" is a bound. "measured"
is the median over the pairs of the difference of medians of unrecorded steps, with half the range over the pairs as its
scatter. It holds where the measured gain is no larger than what was said (scatter allowed for) and more than a tenth of
it; where nothing was said, where turning the knob gains no more than the scatter or 5 % of the step.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

import torch
from knob import ON_CPUS, ON_DEVICES, Knob
from launching import RANKSCOPE, launch

from rankscope.records.codec import from_json
from rankscope.records.report import Action, ClusterReport
from rankscope.rundir.layout import RunDir

JOB = Path(__file__).parent / "knob.py"
SMALL = 0.05
"""Of a step: advice that was not given and would have gained less than this is not missed."""
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
    parser.add_argument("--pairs", type=int, default=3, help="trainings before and after, in turns")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each job")
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
            [*settings, str(JOB), name, "--pairs", str(arguments.pairs), "--times", str(times)],
            ranks=arguments.ranks,
            seconds=arguments.seconds,
        )
        if code:
            print(f"{name:30} exit code {code}\n{output[-1500:]}", flush=True)
            return False
        report = from_json(ClusterReport, (run.report / "report.json").read_bytes())
        steps = [median(training[BEFORE:]) for training in json.loads(times.read_text())]
    action = next((a for a in report.actions if a.code == knob.code), None)
    gains = [before - after for before, after in zip(steps[::2], steps[1::2], strict=True)]
    gain, scatter, step = median(gains), (max(gains) - min(gains)) / 2, median(steps[::2])
    if action is None or action.saves_ms is None:
        holds = gain <= max(scatter, SMALL * step)
    else:
        holds = 0.1 * action.saves_ms < gain <= action.saves_ms + (action.error_ms or 0.0) + scatter
    words = "yes" if holds else "NO"
    if action is None:
        words += f"  said instead: {', '.join(a.code for a in report.actions) or report.verdict.kind}"
    print(f"{name:30} {step:9.1f} {said(action):>16} {gain:9.1f} ± {scatter:6.1f}  {words}", flush=True)
    return holds


def said(action: Action | None) -> str:
    """What an action gains, in its report's words."""
    if action is None or action.saves_ms is None:
        return "-"
    return f"<= {action.saves_ms:.1f}" if action.kind == "bound" else f"{action.saves_ms:.1f} ± {action.error_ms:.1f}"


if __name__ == "__main__":
    main()
