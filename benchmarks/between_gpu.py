"""Step logs of jobs with NCCL, without a profiler. One GPU is enough for the two ranks.

    python benchmarks/between_gpu.py OUT [--steps 600] [--ms 40] [--width 1024]

Rank 1 is late in every 25th step, in its data loader or asleep in its backward, or not at all; with times of the device
(``step_log.device_events``) or without, and with calls that torch times (``TORCH_NCCL_ENABLE_TIMING=1``). For each rank
the table has medians of its steps, of those that are struck and of all others, in ms.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from rankscope.between.judge import judge_logs
from rankscope.between.step_logs import StepTimes, read_step_log
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.records.running.step_log import ASKED, DEVICE
from rankscope.rundir.layout import RunDir

JOB = Path(__file__).parent.parent / "tests" / "dist" / "jobs" / "between.py"
JOBS = (
    ("none", "input", True),
    ("burst", "input", True),
    ("burst", "input", False),
    ("burst", "backward", True),
    ("burst", "backward", False),
)
COLUMNS = (
    *("step", "input", "before", "forward", "backward", "after"),
    *("device_before", "device_forward", "device_backward", "device_after", "issued"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--ms", type=float, default=40.0)
    parser.add_argument("--width", type=int, default=1024)
    options = parser.parse_args()
    for pattern, where, events in JOBS:
        run = RunDir(options.out / f"{pattern}_{where}_{'events' if events else 'host'}")
        print(f"---- {pattern} in {where}, {'with' if events else 'without'} times of the device", flush=True)
        said = _launch(options, run, pattern, where, events)
        logs = {rank: read_step_log(run.step_log(0, rank)) for rank in (0, 1) if run.step_log(0, rank).exists()}
        if len(logs) < 2:
            print("no log:", said[-1500:])
            continue
        manifest = from_json(RunManifest, run.manifest.read_bytes())
        _tell(logs, shared=len({life.device_uuid for life in manifest.lives}) < len(logs))


def _launch(options: argparse.Namespace, run: RunDir, pattern: str, where: str, events: bool) -> str:
    settings = [f"run.dir={run.path}", "schedule.skip_first=1000000", "analysis.enabled=false", "live.mode=off"]
    settings += [f"step_log.device_events={str(events).lower()}", "step_log.calls_pct=2"]
    flags = [word for setting in settings for word in ("-S", setting)]
    words = [
        sys.executable,
        "-m",
        "rankscope",
        "run",
        *flags,
        "--standalone",
        "--nproc-per-node",
        "2",
        JOB,
        pattern,
        "--cuda",
    ]
    words += ["--where", where, "--steps", options.steps, "--ms", options.ms, "--width", options.width]
    env = {**os.environ, "TORCH_NCCL_ENABLE_TIMING": "1"}
    done = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True, env=env)
    return f"exit {done.returncode}\n{done.stderr}"


def _tell(logs: dict[int, StepTimes], *, shared: bool) -> None:
    print(
        f"{'rank':4} {'steps':12} {'number':>6} "
        + " ".join(f"{name.replace('device_', 'd.')[:9]:>9}" for name in COLUMNS)
    )
    for rank, log in logs.items():
        numbers = np.arange(log.steps)
        settled = numbers >= 20
        for name, chosen in (("every 25th", numbers % 25 == 24), ("others", numbers % 25 != 24)):
            print(f"{rank:4} {name:12} {(chosen & settled).sum():6} ", end="")
            for column in COLUMNS:
                values = log.column(column)[chosen & settled]
                values = values[values > 0] if column == "issued" else values
                print(f"{np.median(values) if len(values) else 0:9.2f} ", end="")
            print()
        flags, entries = log.flags(), log.entries
        calls = entries["calls"][entries["calls"] > 0]
        timed = entries["calls_device"][entries["calls"] > 0] / 10
        print(
            f"{rank:4} of {log.steps} steps {((flags & DEVICE) > 0).sum()} have times of the device, {len(calls)} "
            f"their calls (median {np.median(calls) if len(calls) else 0:g}, on the device "
            f"{np.median(timed) if len(timed) else 0:.1f} ms), "
            f"{(log.column('issued') > 0).sum()} the last one's time; {((flags & ASKED) > 0).sum()} reads, steps of "
            f"{np.round(log.column('step')[(flags & ASKED) > 0], 1).tolist()} ms"
        )
    verdict = judge_logs(logs, on_host=False, devices=True, shared=shared)
    print(f"     {verdict.kind} {verdict.ranks}: {verdict.sentence} {verdict.notes}")


if __name__ == "__main__":
    main()
