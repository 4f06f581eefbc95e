"""What a planted fault really costs, and what is said of it: real gloo jobs of 2 and 4 ranks on every mesh.

    python benchmarks/planted.py --out RESULTS [--runs 60] [--budget-s 500] [--only tp] [--errors]

The truth is measured in the same processes and minutes, by steps that are not recorded: after the window the fault
comes and goes, three steps with it and three without, and the difference of neighbouring blocks is its cost (median;
its interval by bootstrap over the pairs). So a machine that is busy with other work makes the truth less certain, but
not wrong. One line a job is added to RESULTS/planted.jsonl; called again with the same RESULTS it goes on. With
--errors what was said over what is true goes into the package, as what the replay is known to be wrong by.

The ranks are forked from a process that has imported torch (see contended.py).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from contended import FAULTS, MESHES, RECORDED, Job, in_child, launch  # first: it sets up the environment
from model_errors import keep

JOBS = {
    **MESHES,
    "pp2": (2, ("--parallel", "pp", "--degree", "2", "--micro", "4")),
    "tpdp4": (4, ("--parallel", "tp", "--degree", "2")),
    "ppdp4": (4, ("--parallel", "pp", "--degree", "2", "--micro", "4")),
}
"""Name -> ranks and flags of gpt.py."""
GRIDS = {"pp2": "stages", "ppdp4": "stages", "tpdp4": "grid"}
"""Those that are not of one process group, as rankscope tells them apart."""
PLANTED = ("input_stall", "host_pause", "extra_compute", "uneven_work", "none")
SIZES = (0.3, 0.6, 1.0)
STEPS, TURNS_FROM, BLOCK = 62, 20, 3
"""The window is recorded well before the step from which the fault comes and goes."""
LEAST_SHARE = 0.05
LONGEST_S = 150.0
DRAWS = 2000


def jobs(count: int) -> list[Job]:
    """Interleaved, so that a run that stops early has some of each."""
    found = []
    for number in range(count):
        mesh = list(JOBS)[number % len(JOBS)]
        fault = PLANTED[(number // len(JOBS) + number) % len(PLANTED)]
        if fault == "uneven_work" and mesh[:2] in ("tp", "pp"):
            fault = "extra_compute"  # ranks of a tensor group or a pipeline work on the same data
        bad = (number // 2) % JOBS[mesh][0] if fault != "none" else -1
        found.append(Job(number, mesh, 0, fault, bad, SIZES[number % len(SIZES)]))
    return found


def truth(steps_ms: Sequence[float]) -> tuple[float, float, float, float]:
    """Mean cost of the fault and its 95 % interval, ms, and the step with it: by neighbouring blocks with and without.

    ``steps_ms`` are those from the second step on.
    """
    steps = np.array([np.nan, *steps_ms])[TURNS_FROM:]
    blocks = steps[: len(steps) // (2 * BLOCK) * 2 * BLOCK].reshape(-1, 2, BLOCK).mean(axis=2)
    apart = blocks[:, 0] - blocks[:, 1]
    draws = np.random.default_rng(0).choice(apart, (DRAWS, len(apart)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return float(np.median(apart)), float(low), float(high), float(np.median(blocks[:, 0]))


def run(job: Job) -> dict[str, Any]:
    """One job; what was said, and what is true."""
    folder = Path(tempfile.mkdtemp(prefix="planted"))
    result, log, times = folder / "result.json", folder / "log.txt", folder / "times.json"
    more = ["--steps", str(STEPS), "--turns-from", str(TURNS_FROM), "--times", str(times)]

    def work() -> None:
        with log.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        result.write_text(json.dumps(launch(job, folder / "job", JOBS, more)))

    error = in_child(work, LONGEST_S, 0, folder / "job" / RECORDED)
    line: dict[str, Any] = {"job": asdict(job), "load": os.getloadavg()[0]}
    if error is None:
        line |= json.loads(result.read_text())
        line["steps_ms"] = json.loads(times.read_text())
        line["truth_ms"] = truth(line["steps_ms"])
    else:
        line |= {"failed": error, "log": log.read_text(errors="replace")[-2000:] if log.exists() else ""}
    shutil.rmtree(folder, ignore_errors=True)
    return line


def grade(line: dict[str, Any]) -> str:
    """One word for the table's columns."""
    if "failed" in line:
        return "failed"
    job, verdict = line["job"], line["verdict"]
    if not verdict["ranks"]:
        return str(verdict["kind"])
    if job["fault"] == "none" or verdict["ranks"] != [job["bad"]]:
        return "INNOCENT"
    return "right" if verdict["cause"] in FAULTS[job["fault"]] else "right, other cause"


def table(lines: Sequence[dict[str, Any]]) -> bool:
    """Print it; whether no innocent was named."""
    columns = sorted({grade(line) for line in lines})
    print("\n| mesh | jobs | " + " | ".join(columns) + " | inside | median of said / true |")
    print("|---|---|" + "---|" * (len(columns) + 2))
    for mesh in [*JOBS, "all"]:
        rows = [line for line in lines if mesh in (line["job"]["mesh"], "all")]
        priced = [line for line in rows if grade(line).startswith("right")]
        cells = [str(sum(grade(line) == name for line in rows) or "") for name in columns]
        ratios = [
            line["verdict"]["cost_ms_per_step"] / line["truth_ms"][0] for line in priced if line["truth_ms"][0] > 0
        ]
        middle = f"{np.median(ratios):.2f}" if ratios else ""
        agree = f"{sum(map(agrees, priced))} of {len(priced)}"
        print(f"| {mesh} | {len(rows)} | " + " | ".join(cells) + f" | {agree} | {middle} |")
    for line in lines:
        if grade(line) in ("INNOCENT", "failed"):
            print(f"{line['job']}: {line.get('failed') or line['verdict']['sentence']} {line.get('truth_ms')}")
    return not any(grade(line) == "INNOCENT" for line in lines)


def agrees(line: dict[str, Any]) -> bool:
    """Whether what is said and what was measured agree within their intervals."""
    said, error = line["verdict"]["cost_ms_per_step"], line["verdict"]["cost_error_ms"] or 0.0
    _, low, high, _ = line["truth_ms"]
    return bool(said - error <= high and said + error >= low)


def beyond(line: dict[str, Any]) -> float:
    """What was said over what is true, less 1; of what is true the nearest in its interval."""
    said = float(line["verdict"]["cost_ms_per_step"])
    _, low, high, _ = line["truth_ms"]
    return said / min(max(said, low), high) - 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--budget-s", type=float, default=500.0, help="no job is begun later")
    parser.add_argument("--only", default="", help="jobs whose mesh and fault hold this text")
    parser.add_argument("--errors", action="store_true", help="keep how far the costs are off in the package")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results, until = args.out / "planted.jsonl", time.monotonic() + args.budget_s

    import torch._inductor  # what the first window of a process would import
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel  # noqa: F401

    multiprocessing.set_start_method("fork")
    known = read(results)
    done = {line["job"]["number"] for line in known if "failed" not in line}
    for job in jobs(args.runs):
        if job.number in done or args.only not in f"{job.mesh} {job.fault}" or time.monotonic() > until:
            continue
        line = run(job)
        with results.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        said = line.get("failed") or line["verdict"]["sentence"]
        print(f"{job.mesh} {job.fault}@{job.bad}: {grade(line)}; true {line.get('truth_ms')}: {said}", flush=True)
    lines = read(results)
    if args.errors:
        right = [line for line in lines if grade(line).startswith("right") and line["truth_ms"][1] > 0]
        cases = [
            (GRIDS.get(line["job"]["mesh"], "one group"), line["verdict"]["cause"], beyond(line)) for line in right
        ]
        keep("gloo jobs with a fault planted", "python benchmarks/planted.py --errors --out RESULTS", cases)
    return int(not table(lines) or any("failed" in line for line in lines))


def read(results: Path) -> list[dict[str, Any]]:
    """Results, the newest of each job."""
    texts = results.read_text().splitlines() if results.exists() else []
    return list({line["job"]["number"]: line for line in map(json.loads, texts)}.values())


if __name__ == "__main__":
    sys.exit(main())
