"""Predicted and measured gains of advice that was followed.

    python benchmarks/knobs.py --out FOLDER [--only workers] [--pairs 3]

Each job trains in turns in one process, with the knob as it was and turned (benchmarks/knob.py); a window of three
steps lies in the first training. "said" is the gain of that action in the report, per step: "<=" is a bound. "measured"
is the median over the pairs of the difference of medians of unrecorded steps, with half the range over the pairs as its
scatter. It holds where the measured gain is no larger than what was said (scatter allowed for) and more than a tenth of
it. Where the report says nothing of the knob there is nothing to hold: these rows are counted apart, "missed" where
turning it gains more than the scatter and 5 % of the step.

What was measured stands in FOLDER and is not measured again; the reports and traces of the windows are beside it. On a
machine without a device jobs run side by side, each on cores of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Lock
from typing import Any

import torch
from knob import Knob, knobs
from launching import RANKSCOPE, launch

from rankscope.records.codec import from_json
from rankscope.records.report import Action, ClusterReport
from rankscope.rundir.layout import RunDir

JOB = Path(__file__).parent / "knob.py"
SMALL = 0.05
"""Of a step: advice that was not given and would have gained less than this is not missed."""
BEFORE = 25
"""Steps of a training that do not count: caches fill, compilers compile, and the window is recorded."""
CORES = 4
"""Of a job on processors, where there are enough: two ranks, their loaders, and what records."""
MOST_BYTES = 4 << 20
"""Largest trace that is kept, bytes."""
SETTINGS = (
    "schedule.skip_first=8",
    "schedule.wait=1",
    "schedule.warmup=2",
    "schedule.active=3",
    "capture.record_shapes=true",
    "analysis.hta=false",
)
ACROSS = Lock()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of what was measured")
    parser.add_argument("--ranks", type=int, default=0, help="default: one a device, two on processors")
    parser.add_argument("--only", default="", help="knobs whose name holds this text")
    parser.add_argument("--pairs", type=int, default=3, help="trainings before and after, in turns")
    parser.add_argument("--steps", type=int, default=60, help="of each training")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each job")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no further job begins")
    parser.add_argument("--table", action="store_true", help="print what was measured, and measure nothing")
    arguments = parser.parse_args()
    devices = torch.cuda.device_count()
    turned = {name: knob for name, knob in knobs(devices).items() if arguments.only in name}
    arguments.out.mkdir(parents=True, exist_ok=True)
    known = arguments.out / ("gpu.json" if devices else "cpu.json")
    if not arguments.table:
        measure(turned, known, devices, arguments)
    for file in sorted(arguments.out.glob("?pu.json")):
        table(json.loads(file.read_text()))


def measure(turned: dict[str, Knob], known: Path, devices: int, arguments: argparse.Namespace) -> None:
    """Measure the settings that are not in the file yet."""
    arguments.ranks = arguments.ranks or min(devices, 2) or 2
    began, cores = time.monotonic(), sorted(os.sched_getaffinity(0))
    free: SimpleQueue[list[int]] = SimpleQueue()
    each = len(cores) if devices else max(min(CORES, len(cores) // 4), min(2, len(cores)))
    for first in range(0, len(cores) - each + 1, each):
        free.put(cores[first : first + each])

    def run(name: str) -> None:
        mine = free.get()
        try:
            if name not in load(known) and time.monotonic() - began < arguments.until:
                row = one(name, turned[name], arguments, mine, known)
                with ACROSS:
                    known.write_text(json.dumps({**load(known), **({name: row} if row else {})}, indent=1))
        finally:
            free.put(mine)

    with ThreadPoolExecutor(free.qsize()) as pool:
        list(pool.map(run, turned))


def load(known: Path) -> dict[str, Any]:
    """Return setting -> measurement."""
    return json.loads(known.read_text()) if known.exists() else {}


def one(name: str, knob: Knob, arguments: argparse.Namespace, cores: list[int], known: Path) -> dict[str, Any] | None:
    """Run a job; return its row, or None if it failed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run, times = RunDir(Path(folder) / "run"), Path(folder) / "times.json"
        settings = [word for s in (f"run.dir={run.path}", *SETTINGS) for word in ("-S", s)]
        how = ["--pairs", str(arguments.pairs), "--steps", str(arguments.steps), "--times", str(times)]
        code, output = launch(
            RANKSCOPE,
            [*settings, str(JOB), name, *how],
            ranks=arguments.ranks,
            seconds=arguments.seconds,
            cores=cores,
        )
        if code:
            print(f"{name}: exit code {code}\n{output[-1500:]}", flush=True)
        result = run.report / "report.json"
        trainings = json.loads(times.read_text()) if times.exists() else []
        if len(trainings) < 2 or not result.exists():
            return None
        report = from_json(ClusterReport, result.read_bytes())
        with ACROSS, zipfile.ZipFile(known.with_suffix(".zip"), "a", zipfile.ZIP_DEFLATED) as kept:
            for file in (result, run.path / "run.json", *run.path.glob("attempt_*/window_*/*.json*")):
                if file.is_file() and file.stat().st_size < MOST_BYTES:
                    kept.write(file, f"{name}/{file.relative_to(run.path)}")
    steps = [median(training[min(BEFORE, arguments.steps // 2) :]) for training in trainings]
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    action = next((a for a in report.actions if a.code == knob.code and a.saves_ms is not None), None)
    return {
        "before": steps[::2][: len(steps) // 2],
        "after": steps[1::2],
        "said": action and asdict(action),
        "verdict": report.verdict.sentence,
        "others": [a.code for a in report.actions],
        "where": f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'}, torch {torch.__version__}, "
        f"{arguments.ranks} ranks, {len(cores)} cores a job",
    }


def table(rows: dict[str, Any]) -> None:
    """Print all settings with predicted and measured gains."""
    print(f"\n{'knob':30} {'step, ms':>9} {'said, ms':>16} {'measured, ms':>18}  holds")
    held, silent = list[bool](), list[bool]()
    for name, row in rows.items():
        gains = [before - after for before, after in zip(row["before"], row["after"], strict=True)]
        gain, scatter, step = median(gains), (max(gains) - min(gains)) / 2, median(row["before"])
        action = row["said"] and Action(**row["said"])
        if action is None:
            silent.append(gain <= max(scatter, SMALL * step))
            words = f"{'nothing said' if silent[-1] else 'missed'}; {', '.join(row['others']) or row['verdict']}"
        else:
            saves = action.saves_ms or 0.0
            most = saves + (action.error_ms or 0.0) + scatter
            held.append(0.1 * saves < gain <= most)
            words = "yes" if held[-1] else "NO"
        print(f"{name:30} {step:9.1f} {said(action):>16} {gain:9.1f} ± {scatter:6.1f}  {words}")
    print(f"{sum(held)} of {len(held)} hold; of {len(silent)} nothing was said, of them {silent.count(False)} missed")
    print(*sorted({row["where"] for row in rows.values()}), sep="\n")


def said(action: Action | None) -> str:
    """Return the gain of an action as its report writes it."""
    if action is None:
        return "-"
    return f"<= {action.saves_ms:.1f}" if action.kind == "bound" else f"{action.saves_ms:.1f} ± {action.error_ms:.1f}"


if __name__ == "__main__":
    main()
