"""True and reported costs of planted faults: real gloo jobs of 2 and 4 ranks on every mesh.

    python benchmarks/planted.py --out RESULTS [--runs 60] [--lanes 8] [--budget-s 500] [--only tp] [--errors]

The truth is measured in the same processes and minutes, by steps that are not recorded: after the window the fault
comes and goes, three steps with it and three without, and the difference of neighbouring blocks is its cost (median;
its interval by bootstrap over the pairs). So a machine that is busy with other work makes the truth less certain, but
not wrong. One line a job is added to RESULTS/planted.jsonl; called again with the same RESULTS it goes on, and with
--judge it applies this tree's rules to the evidence in them. With --errors what was said over what is true goes into
the package, as what the replay is known to be wrong by.

With --lanes several jobs run at a time, each on cores of its own, one for each rank. A core with two hardware threads
counts once: a rank would run faster on it while the rank on its other thread is late.

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
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
from contended import FAULTS, MESHES, Job, again, launch, outcome_of, siblings  # first: the environment
from contended import keep as keep_run
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
STEPS, TURNS_FROM, BLOCK = 104, 20, 3
"""The window is recorded well before the step from which the fault comes and goes."""
LONGEST_S = 150.0
DRAWS = 2000


def jobs(count: int, sizes: Sequence[float] = SIZES) -> list[Job]:
    """Interleaved, so that a run that stops early has some of each; 135 are every mesh with every fault and size."""
    found = []
    for number in range(count):
        turn, at = divmod(number, len(JOBS))
        mesh = list(JOBS)[at]
        fault = PLANTED[(turn + at) % len(PLANTED)]
        if fault == "uneven_work" and mesh[:2] in ("tp", "pp"):
            fault = "extra_compute"  # ranks of a tensor group or a pipeline work on the same data
        bad = turn % JOBS[mesh][0] if fault != "none" else -1
        found.append(Job(number, mesh, 0, fault, bad, sizes[(turn + at) % len(sizes)]))
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


def run(job: Job, kept: Path | None = None) -> dict[str, Any]:
    """Run one job; return verdict and truth. The records of a job with a wrong verdict are copied to ``kept``."""
    folder = Path(tempfile.mkdtemp(prefix="planted"))
    times = folder / "times.json"
    more = ["--steps", str(STEPS), "--turns-from", str(TURNS_FROM), "--times", str(times)]

    outcome = outcome_of(lambda place: json.dumps(launch(job, place, JOBS, more)), folder, 0, LONGEST_S)
    line: dict[str, Any] = {"job": asdict(job), "load": os.getloadavg()[0], **outcome}
    if "failed" not in line:
        line["steps_ms"] = json.loads(times.read_text())
        line["truth_ms"] = truth(line["steps_ms"])
    if kept is not None and grade(line) != "right":
        keep_run(folder / "job" / "run", kept / f"{job.number:03d}_{job.mesh}_{job.fault}")
    shutil.rmtree(folder, ignore_errors=True)
    return line


def in_lanes(todo: list[Job], lanes: int, until: float, kept: Path | None) -> Iterator[dict[str, Any]]:
    """Run jobs in parallel, each on its own cores; yield the result of each when it ends."""
    cores: dict[int, list[int]] = {}
    for core in sorted(os.sched_getaffinity(0), key=siblings):
        cores.setdefault(siblings(core)[0], []).append(core)
    free = list(cores.values())
    running: list[tuple[Connection, Any, list[list[int]]]] = []
    most = max((JOBS[job.mesh][0] for job in todo), default=0)
    if lanes > 1 and len(free) < most:
        raise SystemExit(f"--lanes needs {most} cores for a job of {most} ranks, and this process may use {len(free)}")
    fork = multiprocessing.get_context("fork")
    while running or (todo and time.monotonic() < until):
        needed = JOBS[todo[0].mesh][0] if todo and time.monotonic() < until else 0
        if needed and len(running) < lanes and (lanes == 1 or needed <= len(free)):
            own, free = (free[:needed], free[needed:]) if lanes > 1 else (free, free)
            receive, send = fork.Pipe(duplex=False)
            process = fork.Process(target=_pinned, args=([c for core in own for c in core], todo.pop(0), kept, send))
            process.start()
            send.close()
            running.append((receive, process, own))
            continue
        for ended in wait([receive for receive, _, _ in running]):
            at = next(i for i, (receive, _, _) in enumerate(running) if receive is ended)
            receive, process, own = running.pop(at)
            line: dict[str, Any] = receive.recv()
            process.join()
            free = free + own if lanes > 1 else free
            yield line


def _pinned(cores: list[int], job: Job, kept: Path | None, answer: Connection) -> None:
    os.sched_setaffinity(0, cores)
    try:
        answer.send(run(job, kept))
    except Exception as error:  # one job of many
        answer.send({"job": asdict(job), "failed": repr(error), "seconds": 0.0})


def grade(line: dict[str, Any]) -> str:
    """Return the grade, one of the columns of the table."""
    if "failed" in line:
        return "failed"
    job, verdict = line["job"], line["verdict"]
    if not verdict["ranks"]:
        return str(verdict["kind"])
    if job["fault"] == "none" or verdict["ranks"] != [job["bad"]]:
        return "INNOCENT"
    return "right" if verdict["cause"] in FAULTS[job["fault"]] else "right, other cause"


def table(lines: Sequence[dict[str, Any]]) -> bool:
    """Print the table; return whether no healthy rank was named."""
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
    """Return whether reported and measured cost agree within their intervals."""
    said, error = line["verdict"]["cost_ms_per_step"], line["verdict"]["cost_error_ms"] or 0.0
    _, low, high, _ = line["truth_ms"]
    return bool(said - error <= high and said + error >= low)


def beyond(line: dict[str, Any]) -> float:
    """Return reported over true cost, minus 1, with the nearest true cost in its interval."""
    said = float(line["verdict"]["cost_ms_per_step"])
    _, low, high, _ = line["truth_ms"]
    return said / min(max(said, low), high) - 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of the faults, times that of faults.py")
    parser.add_argument("--lanes", type=int, default=1, help="jobs at a time, each on cores of its own")
    parser.add_argument("--budget-s", type=float, default=500.0, help="no job is begun later")
    parser.add_argument("--keep", type=Path, help="folder for traces and records of jobs whose verdict was not right")
    parser.add_argument("--judge", action="store_true", help="launch nothing: apply this tree's rules to the results")
    parser.add_argument("--only", default="", help="jobs whose mesh and fault hold this text")
    parser.add_argument("--errors", action="store_true", help="keep how far the costs are off in the package")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results, until = args.out / "planted.jsonl", time.monotonic() + args.budget_s

    if not args.judge:
        measure(args, results, until)
    lines = [again(line) if args.judge else line for line in read(results)]
    if args.errors:
        right = [line for line in lines if grade(line).startswith("right") and line["truth_ms"][1] > 0]
        cases = [
            (GRIDS.get(line["job"]["mesh"], "one group"), line["verdict"]["cause"], beyond(line)) for line in right
        ]
        keep("gloo jobs with a fault planted", "python benchmarks/planted.py --errors --out RESULTS", cases)
    return int(not table(lines) or any("failed" in line for line in lines))


def measure(args: argparse.Namespace, results: Path, until: float) -> None:
    """Run the jobs that are not in the results yet, and add their results."""
    import torch._inductor  # what the first window of a process would import
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel  # noqa: F401

    multiprocessing.set_start_method("fork")
    done = {line["job"]["number"] for line in read(results) if "failed" not in line}
    planned = jobs(args.runs, [float(size) for size in args.sizes.split(",")])
    todo = [job for job in planned if job.number not in done and args.only in f"{job.mesh} {job.fault}"]
    for line in in_lanes(todo, args.lanes, until, args.keep):
        with results.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        job, said = line["job"], line.get("failed") or line["verdict"]["sentence"]
        print(
            f"{job['mesh']} {job['fault']}@{job['bad']}: {grade(line)} ({line['seconds']:.0f} s);"
            f" true {line.get('truth_ms')}: {said}",
            flush=True,
        )


def read(results: Path) -> list[dict[str, Any]]:
    """Return the newest result of each job."""
    texts = results.read_text().splitlines() if results.exists() else []
    return list({line["job"]["number"]: line for line in map(json.loads, texts)}.values())


if __name__ == "__main__":
    sys.exit(main())
