"""Training jobs under other load: whether a busy machine leads to false stragglers. Real gloo jobs, two cores each.

    python benchmarks/contended.py --out RESULTS --cells 8 --budget-s 500

A third of the healthy jobs (DDP, FSDP2, tensor parallel; 2 and 4 ranks) has its cell for itself, a third shares it
with 2 processes that burn CPU, a third with 6; jobs with a planted fault run beside the same load. Right is:

- healthy: no rank is named; beside load the verdict is that the machine was busy, or that the job is balanced;
- with a fault: the faulty rank is named, or the machine; never another rank.

What burns is kept on the two cores of its cell. What decides is what the scheduler counts for each thread, which cells
do not share; only the confidence of a verdict sees the pressure of the whole machine.

The ranks are forked from a process that has imported torch, which makes a launch cost half a second of CPU instead of
eight. Each job leaves one line in RESULTS/cell_N.jsonl, with the evidence, so that other rules can be tried on it:
``--judge`` does that with the rules of this tree. Called again with the same RESULTS it goes on where it stopped.
"""

from __future__ import annotations

import os
import re

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported: the jobs are on the CPU
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import multiprocessing
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))

from rankscope.config import ToolConfig  # noqa: E402 - the path first
from rankscope.diagnose.advice.table import advise  # noqa: E402
from rankscope.diagnose.rules.table import find, open_case  # noqa: E402
from rankscope.diagnose.verdict import judge  # noqa: E402
from rankscope.records.codec import from_json, to_plain  # noqa: E402
from rankscope.records.evidence import Evidence  # noqa: E402
from rankscope.rundir.layout import RunDir  # noqa: E402

MESHES = {
    "ddp2": (2, ("--parallel", "ddp")),
    "fsdp2": (2, ("--parallel", "fsdp2")),
    "tp2": (2, ("--parallel", "tp")),
    "ddp4": (4, ("--parallel", "ddp")),
    "fsdp4": (4, ("--parallel", "fsdp2")),
    "tp4": (4, ("--parallel", "tp", "--degree", "4")),
}
"""Name -> ranks and flags of gpt.py."""
MODEL = ("--width", "128", "--layers", "4", "--sequence", "64", "--vocabulary", "512", "--batch", "8", "--steps", "20")
FAULTS = {
    "input_stall": ("input_stall",),
    "host_pause": ("host_pause",),
    "extra_compute": ("extra_compute", "uneven_work", "slow_compute"),
    "uneven_work": ("uneven_work", "extra_compute", "slow_compute"),
    "slow_compute": ("slow_compute",),
}
"""Fault -> causes that are right for it. Without grids or enough operators more work is called slower work."""
SIZES = (0.5, 1.0, 1.5)
"""Factors on 60 ms of stall, 50 ms of pause, or 120 products."""
LOADS = (0, 2, 6)
LONGEST_S = 100.0
RECORDED = "recorded"
"""Name of the file in a job's folder that exists once its ranks have ended."""
BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**5))"
"""Program that is busy for as long as its parent runs."""


@dataclass(frozen=True)
class Job:
    number: int
    mesh: str
    load: int
    fault: str = "none"
    bad: int = -1
    size: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.number:03d} {self.mesh} load {self.load} {self.fault}"


def jobs(healthy: int, faulty: int) -> list[Job]:
    """Interleaved, so that a run that stops early has some of each."""
    meshes = list(MESHES)
    calm = [Job(i, meshes[i % 6], LOADS[i // 6 % 3]) for i in range(healthy)]
    bad = []
    for i in range(faulty):
        mesh = meshes[i % 6]
        fault, rank = list(FAULTS)[i // 12 % 5], (i // 6 + i) % MESHES[mesh][0]
        if mesh.startswith("tp") and fault == "uneven_work":
            fault = "extra_compute"  # all of a tensor group work on the same data
        bad.append(Job(1000 + i, mesh, LOADS[1 + i // 6 % 2], fault, rank, SIZES[i // 2 % 3]))
    every = max(healthy // max(faulty, 1), 1)
    mixed = [job for at, job in enumerate(calm) for job in (job, *bad[at // every : at // every + (at % every == 0)])]
    return mixed + [job for job in bad if job not in mixed]


# ---------------------------------------------------------------- one job


def as_rank(spec: str, words: list[str], fault: str, bad: int) -> None:
    """Run one rank: start the agent as the injected module would, then the script."""
    import torch

    from rankscope.agent import bootstrap
    from rankscope.agent.process.guard import kept_messages

    if fault == "slow_compute" and int(os.environ["RANK"]) == bad:
        os.environ["MKL_CBWR"] = "COMPATIBLE"  # read when MKL computes for the first time
    torch.set_num_threads(1)
    bootstrap.arm(spec, certain=True)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    print("the agent:", kept_messages(), flush=True)


def record(
    job: Job,
    folder: Path,
    meshes: dict[str, tuple[int, tuple[str, ...]]] = MESHES,
    more: Sequence[str] = (),
    *,
    shapes: bool = False,
) -> RunDir:
    """Record the job, and return its run directory. ``more`` are flags of the script."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from rankscope.launcher.job import begin
    from rankscope.launcher.run_plan import RunPlan
    from rankscope.records.running.node_task import JobEnd

    ranks, flags = meshes[job.mesh]
    config = ToolConfig()
    config.capture.backend, config.schedule.skip_first, config.schedule.wait = "inline", 6, 0
    config.capture.record_shapes = shapes
    config.analysis.enabled = False  # it is done here, where the evidence can be kept
    folder.mkdir(parents=True, exist_ok=True)
    run_dir = RunDir(folder / "run")
    plan = RunPlan(run_id=folder.name, run_dir=run_dir.path, node=None, launch=f"launch {folder}", alone=True)
    session = begin(plan, config, argv=[], plain={})
    words = [str(HERE / "gpt.py"), *flags, *MODEL, *more]
    if job.fault not in ("none", "slow_compute"):
        words += ["--fault", job.fault, "--bad-rank", str(job.bad), "--size", str(job.size)]
    how = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=ranks, start_method="fork", rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", run_id=folder.name, monitor_interval=0.05,
    )  # fmt: skip
    elastic_launch(how, as_rank)(str(session.spool.spec), words, job.fault, job.bad)
    (folder / RECORDED).touch()
    session.helper.finish(JobEnd(exit_code=0))
    ends = time.monotonic() + 30.0
    while time.monotonic() < ends:
        word = session.helper.next_message(0.2)
        if word is not None and word.kind in ("manifest", "refused"):
            break
    session.helper.end()
    shutil.rmtree(session.spool.path, ignore_errors=True)
    return run_dir


def launch(
    job: Job, folder: Path, meshes: dict[str, tuple[int, tuple[str, ...]]] = MESHES, more: Sequence[str] = ()
) -> dict[str, Any]:
    """Record the job and analyse it; what came of it, for the results."""
    from rankscope.analysis.pipeline import analyze
    from rankscope.records.manifest import RunManifest
    from rankscope.trace.files.load import load_traces

    run_dir = record(job, folder, meshes, more, shapes=job.fault == "uneven_work")
    manifest = from_json(RunManifest, run_dir.manifest.read_bytes())
    kept: list[Evidence] = []
    with keeping(kept):
        report = analyze(load_traces([run_dir.path]), manifest, hta=False)
    records = manifest.windows[0].records if manifest.windows else []
    return {
        "verdict": to_plain(report.verdict),
        "findings": [[f.kind, f.ranks, f.cost_ms_per_step, f.title] for f in report.findings],
        "errors": [f"{e.where}: {e.message}" for e in report.errors],
        "evidence": to_plain(kept[-1]) if kept else None,
        "records": [to_plain(r) for r in records],
    }


class keeping:  # noqa: N801 - used like contextlib's
    """Context in which the evidence passed to the diagnosis is kept."""

    def __init__(self, kept: list[Evidence]) -> None:
        self.kept = kept

    def __enter__(self) -> None:
        from rankscope.analysis import diagnosis

        self.judge, kept = diagnosis.judge, self.kept

        def judge(case: Any, actions: Any) -> Any:
            kept.append(case.evidence)
            return self.judge(case, actions)

        diagnosis.judge = judge  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        from rankscope.analysis import diagnosis

        diagnosis.judge = self.judge


# ---------------------------------------------------------------- cells


def in_child(work: Callable[[], None], seconds: float, load: int, until: Path) -> str | None:
    """Run ``work`` in a forked process group of its own; what went wrong, or None.

    Beside it ``load`` processes burn CPU, which are none of its children, until there is a file ``until``.
    """
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(load)]
    child = multiprocessing.get_context("fork").Process(target=_alone, args=(work,))
    child.start()
    ends = time.monotonic() + seconds
    while child.is_alive() and not until.exists() and time.monotonic() < ends:
        child.join(0.1)
    for process in burning:
        process.kill()
    for process in burning:
        process.wait()
    child.join(max(ends - time.monotonic(), 0.0))
    if child.is_alive() and child.pid is not None:
        os.killpg(child.pid, signal.SIGKILL)
        child.join()
        return f"ended after {seconds:.0f} s"
    return None if child.exitcode == 0 else f"exit code {child.exitcode}"


def _alone(work: Callable[[], None]) -> None:
    os.setsid()
    work()


def siblings(core: int) -> tuple[int, int]:
    """Sort key that puts the threads of one physical core side by side: a cell shares none with another."""
    try:
        listed = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return core, core
    return int(re.split(r"[,-]", listed)[0]), core


T = TypeVar("T")


def in_turn(todo: Sequence[T], taken: Any, until: float) -> Iterator[T]:
    """Yield what no other lane has taken, as long as there is time for what took longest so far.

    Args:
        todo: jobs of all lanes.
        taken: how many of them were taken, a number that the lanes share.
        until: time.monotonic() at which the lane ends.
    """
    longest = 10.0
    while True:
        with taken.get_lock():
            at = taken.value
            taken.value += 1
        if at >= len(todo) or time.monotonic() + longest > until:
            return
        began = time.monotonic()
        yield todo[at]
        longest = max(longest, min(time.monotonic() - began, LONGEST_S))


def longest_until(until: float) -> float:
    """Return how long a job may take in a lane that ends at this time.monotonic(), seconds."""
    return min(LONGEST_S, max(until + 20 - time.monotonic(), 1.0))


def outcome_of(work: Callable[[Path], str], folder: Path, load: int, seconds: float) -> dict[str, Any]:
    """Run work in a child beside a load; return its answer, how long it took, and its output if it failed.

    Args:
        work: is given a folder for a job, and returns JSON.
        folder: of the job, of its answer and of its output.
        load: number of processes that burn CPU.
        seconds: after which it is ended.
    """
    began, result, log = time.monotonic(), folder / "result.json", folder / "log.txt"

    def logged() -> None:
        with log.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        result.write_text(work(folder / "job"))

    error = in_child(logged, seconds, load, folder / "job" / RECORDED)
    line: dict[str, Any] = {"seconds": time.monotonic() - began}
    if error is None:
        return line | json.loads(result.read_text())
    return line | {"failed": error, "log": log.read_text(errors="replace")[-2000:] if log.exists() else ""}


def in_lanes(lane: Callable[..., None], parts: Sequence[tuple[Any, ...]], until: float) -> None:
    """Run a process for each part, which is what it is given after the jobs that all have taken; wait for all."""
    fork = multiprocessing.get_context("fork")
    taken = fork.Value("i", 0)
    running = [fork.Process(target=lane, args=(*part, taken, until)) for part in parts]
    for process in running:
        process.start()
    for process in running:
        process.join()


def _launched(job: Job, place: Path) -> str:
    return json.dumps(launch(job, place))


def cell(number: int, cores: list[int], todo: list[Job], args: argparse.Namespace, taken: Any, until: float) -> None:
    """Run one cell: take the next job as long as there is time."""
    os.sched_setaffinity(0, cores)
    for job in in_turn(todo, taken, until):
        folder = Path(tempfile.mkdtemp(prefix="contended"))
        line: dict[str, Any] = {"job": asdict(job), "cores": cores}
        line |= outcome_of(partial(_launched, job), folder, job.load, longest_until(until))
        if "failed" not in line and not all(record["trace"] for record in line["records"]):
            line["log"] = (folder / "log.txt").read_text(errors="replace")[-3000:]
        with (args.out / f"cell_{number}.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        if args.keep:
            keep(folder / "job" / "run", args.keep / job.name.replace(" ", "_"))
        shutil.rmtree(folder, ignore_errors=True)
        outcome = line.get("failed") or f"{line['verdict']['kind']} {line['verdict']['ranks']}"
        print(f"{job.name}@{job.bad}: {outcome} ({line['seconds']:.0f} s)", flush=True)


def keep(run: Path, place: Path) -> None:
    """Return the traces and records of a job."""
    if run.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(run, place, dirs_exist_ok=True)


# ---------------------------------------------------------------- the table


def read(folder: Path) -> dict[int, dict[str, Any]]:
    """Results by the number of the job; a job that failed and was done again counts once."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("cell_*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if "failed" not in line or line["job"]["number"] not in found:
                found[line["job"]["number"]] = line
    return found


def again(line: dict[str, Any]) -> dict[str, Any]:
    """Diagnose the kept evidence again with the current rules."""
    if not line.get("evidence"):
        return line
    evidence = from_json(Evidence, json.dumps(line["evidence"]))
    case = open_case(evidence)
    findings = find(case)
    verdict = judge(case, advise(case))
    found = [[f.kind, f.ranks, f.cost_ms_per_step, f.title] for f in findings]
    return line | {"verdict": to_plain(verdict), "findings": found}


def outcome(line: dict[str, Any]) -> str:
    """Return the grade, one of the columns of the table."""
    if "failed" in line:
        return "failed"
    job, verdict = line["job"], line["verdict"]
    if not verdict["ranks"]:
        return str(verdict["kind"])
    if job["fault"] == "none" or verdict["ranks"] != [job["bad"]]:
        return "INNOCENT"
    return "culprit" if verdict["cause"] in FAULTS[job["fault"]] else "culprit, other cause"


def table(lines: list[dict[str, Any]]) -> bool:
    """Print the table; return whether no healthy rank was named."""
    counts: dict[tuple[str, str, int], dict[str, int]] = {}
    for line in lines:
        job = line["job"]
        row = counts.setdefault((job["fault"], job["mesh"] if job["fault"] == "none" else "", job["load"]), {})
        row[outcome(line)] = row.get(outcome(line), 0) + 1
    columns = sorted({name for row in counts.values() for name in row})
    print("\n| planted | mesh | burning beside | jobs | " + " | ".join(columns) + " |")
    print("|---|---|---|---|" + "---|" * len(columns))
    for (fault, mesh, load), row in sorted(counts.items(), key=lambda item: (item[0][0] != "none", item[0])):
        cells = " | ".join(str(row.get(name, "")) for name in columns)
        print(f"| {fault} | {mesh} | {load} | {sum(row.values())} | {cells} |")
    total = {name: sum(row.get(name, 0) for row in counts.values()) for name in columns}
    print(f"| all | | | {len(lines)} | " + " | ".join(str(total[name]) for name in columns) + " |")
    for line in lines:
        if outcome(line) in ("INNOCENT", "failed"):
            print(f"{line['job']}: {line.get('failed') or line['verdict']['sentence']}")
    return not total.get("INNOCENT")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--cells", type=int, default=1, help="jobs at a time, each on two cores of its own")
    parser.add_argument("--healthy", type=int, default=200)
    parser.add_argument("--faulty", type=int, default=60)
    parser.add_argument("--budget-s", type=float, default=500.0, help="no job is begun that may end later")
    parser.add_argument("--keep", type=Path, help="folder for traces and records of each job (about 0.3 MB each)")
    parser.add_argument("--only", default="", metavar="WORD,...", help="jobs whose name has one of these")
    parser.add_argument("--judge", action="store_true", help="launch nothing: apply this tree's rules to the results")
    args = parser.parse_args()
    if args.judge:
        return int(not table([again(line) for _, line in sorted(read(args.out).items())]))
    args.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + args.budget_s
    cores = sorted(os.sched_getaffinity(0), key=siblings)
    if len(cores) < 2 * args.cells:
        raise SystemExit(f"--cells {args.cells} needs {2 * args.cells} cores, and this process may use {len(cores)}")
    done = {number for number, line in read(args.out).items() if "failed" not in line}
    wanted = args.only.split(",")
    todo = [
        job for job in jobs(args.healthy, args.faulty) if job.number not in done and any(w in job.name for w in wanted)
    ]
    import torch
    import torch._inductor  # what the first window of a process would import
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel

    print(f"{len(todo)} jobs on {args.cells} cells, torch {torch.__version__}, {os.uname().release}", flush=True)
    in_lanes(cell, [(n, cores[2 * n : 2 * n + 2], todo, args) for n in range(args.cells)], until)
    lines = [line for _, line in sorted(read(args.out).items())]
    return int(not table(lines) or any("failed" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
