"""Verdicts of ``rankscope diff`` on runs of one program that are equal, differ in load, or have 10 % longer steps.

    python benchmarks/compare_jobs.py --out RESULTS --lanes 4 --budget-s 230    # record real gloo jobs, and judge pairs
    python benchmarks/compare_jobs.py --out RESULTS                             # judge the pairs again, anywhere

Jobs of 2 ranks (DDP, FSDP2, tensor parallel) of some 300 steps, each in a lane of cores of its own: alone; beside
processes that burn half of the lane's cores; beside three for two cores; and alone with a host that is busy for another
tenth of each step. Each leaves the summary that a baseline would keep, and samples of the host's load, in
RESULTS/lane_N.jsonl.gz. Called again with the same RESULTS it goes on with what is left.

Pairs are drawn from two different runs of one program: blocks of 80 neighbouring unrecorded steps for times (the
summary also has the load, by which runs may be not comparable), whole runs for counts and kernels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from contended import (  # first: it sets up the environment
    Job,
    in_lanes,
    in_turn,
    longest_until,
    outcome_of,
    record,
    siblings,
)

import numpy as np  # isort: skip

from rankscope.analysis.tables.cpu_of_others import cpu_of_others
from rankscope.compare.compare import compare
from rankscope.compare.sides.side import Side, from_summaries, read_side, summary_of
from rankscope.compare.significance import LEAST_SHARE
from rankscope.records.codec import from_json
from rankscope.records.diff import RunDiff
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import HostSample, RankRecord
from rankscope.records.run_summary import RunSummary

MESHES: dict[str, tuple[int, tuple[str, ...]]] = {
    "ddp": (2, ("--parallel", "ddp")),
    "fsdp2": (2, ("--parallel", "fsdp2")),
    "tp": (2, ("--parallel", "tp")),
}
"""Name -> ranks and flags of gpt.py."""
LOADS = {"alone": 0.0, "longer": 0.0, "half": 0.5, "over": 1.5}
"""Condition -> number of CPU-bound processes on the cores of the job, per core."""
RUNS = {"alone": 6, "longer": 3, "half": 3, "over": 3}
"""Number of runs of each program."""
SMALL = ("--layers", "2", "--batch", "4")
"""Flags of gpt.py: steps of some 10 ms, so that a run takes seconds."""
STEPS = 300
BLOCK = 80
"""Number of unrecorded steps that are compared."""
ALARMS = (("alone", "alone"), ("alone", "half"), ("half", "half"), ("alone", "over"), ("over", "over"))
"""Conditions of the older and of the newer run. Only the load differs: slower is false."""


@dataclass(frozen=True)
class Run:
    number: int
    mesh: str
    condition: str


@dataclass
class Recorded:
    run: Run
    side: Side
    summary: RunSummary


def runs() -> list[Run]:
    """Interleaved, so that a series that stops early has some of each; what needs a quiet machine first."""
    found: list[tuple[str, str]] = []
    for quiet in (True, False):
        for turn in range(max(RUNS.values())):
            found += [
                (mesh, condition)
                for condition, count in RUNS.items()
                if turn < count and (LOADS[condition] == 0.0) == quiet
                for mesh in MESHES
            ]
    return [Run(number, mesh, condition) for number, (mesh, condition) in enumerate(found)]


# ---------------------------------------------------------------- recording


def lane(number: int, cores: list[int], todo: list[Run], args: argparse.Namespace, taken: Any, until: float) -> None:
    """Run one lane: take the next run as long as there is time."""
    os.sched_setaffinity(0, cores)
    for run in in_turn(todo, taken, until):
        folder = Path(tempfile.mkdtemp(prefix="compared"))
        longer = run.condition == "longer"
        job = Job(run.number, run.mesh, round(LOADS[run.condition] * len(cores)), "longer_steps" if longer else "none")
        line: dict[str, Any] = {"run": asdict(run), "cores": cores}
        line |= outcome_of(partial(_summary, job, args.steps), folder, job.load, longest_until(until))
        with gzip.open(args.out / f"lane_{number}.jsonl.gz", "at") as stream:
            stream.write(json.dumps(line) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        steps = line.get("failed") or f"{len(line['summary']['step_ms'])} steps, {_median(line):.2f} ms"
        print(f"{run.number:02d} {run.mesh} {run.condition}: {steps} ({line['seconds']:.0f} s)", flush=True)


def _summary(job: Job, steps: int, folder: Path) -> str:
    place = record(job, folder, MESHES, (*SMALL, "--steps", str(steps)), shapes=True)
    manifest = from_json(RunManifest, place.manifest.read_bytes())
    load = [record.host_load for window in manifest.windows for record in window.records]
    return json.dumps({"summary": summary_of(read_side(place.path)), "host_load": load}, default=vars)


def _median(line: dict[str, Any]) -> float:
    return float(np.median(line["summary"]["step_ms"] or [np.nan]))


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the results so far, without incomplete lines of killed lanes."""
    for path in sorted(folder.glob("lane_*.jsonl.gz")):
        yield from _lines(path)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rt") as stream:
            for text in stream:
                yield json.loads(text)
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error):
        print(f"{path}: its end is cut off", file=sys.stderr)


def record_all(args: argparse.Namespace) -> None:
    until = time.monotonic() + args.budget_s
    args.out.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0), key=siblings)
    if len(cores) < args.cores * args.lanes:
        raise SystemExit(f"{args.lanes} lanes of {args.cores} cores: this process may use {len(cores)} cores")
    done = {line["run"]["number"] for line in lines(args.out) if "failed" not in line}
    words = args.only.split(",")
    todo = [r for r in runs() if r.number not in done and any(w in f"{r.mesh} {r.condition}" for w in words)]
    import torch
    import torch._inductor  # what the first window of a process would import
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel

    print(f"{len(todo)} runs in {args.lanes} lanes, torch {torch.__version__}, {os.uname().release}", flush=True)
    # the files of an earlier call stay as they are: a lane that was cut off in writing has spoiled the end of its own
    first = len(list(args.out.glob("lane_*.jsonl.gz")))
    parts = [(first + n, cores[args.cores * n : args.cores * (n + 1)], todo, args) for n in range(args.lanes)]
    in_lanes(lane, parts, until)


# ---------------------------------------------------------------- pairs


def read(folder: Path) -> list[Recorded]:
    found = []
    for line in lines(folder):
        if "failed" in line:
            print(f"{line['run']}: {line['failed']} {line['log'][-300:]}")
            continue
        summary = from_json(RunSummary, json.dumps(line["summary"]))
        add_others(summary, line["host_load"])
        run = Run(**line["run"])
        summary.name = f"{run.mesh} {run.condition} {run.number}"
        found.append(Recorded(run, from_summaries(summary.name, [summary]), summary))
    return [one for one in found if len(one.side.unrecorded_ms) >= BLOCK]


def add_others(summary: RunSummary, load: list[list[dict[str, Any]]]) -> None:
    """Add what other processes used to a report of a version that did not have it, by the samples of the host."""
    health = summary.report.health if summary.report is not None else []
    if any(row.others_cpu_pct is not None for row in health):
        return
    records = [
        RankRecord(
            rank=rank, local_rank=rank, world_size=len(load), host="node", pid=1, attempt=0, window=rank,
            host_load=[HostSample(**sample) for sample in samples],
        )
        for rank, samples in enumerate(load)
    ]  # fmt: skip
    others = cpu_of_others(records).get("node")
    for row in health:
        row.others_cpu_pct = 100 * others / row.cpus if others is not None and row.cpus else None


def conditions(recorded: Sequence[Recorded]) -> None:
    print("1. runs: medians of the unrecorded steps, ms; highest CPU pressure; what others used of the job's CPUs\n")
    print("| program | condition | runs | steps, ms | CPU pressure, % | others, % | findings of a busy machine |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for mesh in MESHES:
        for condition in RUNS:
            own = _of(recorded, mesh, condition)
            steps = ", ".join(f"{np.median(one.side.unrecorded_ms):.1f}" for one in own)
            pressure = ", ".join(_highest(one, "pressure_cpu_pct") for one in own)
            others = ", ".join(_highest(one, "others_cpu_pct") for one in own)
            busy = sum(
                "contended" in {f.kind for f in one.side.report.findings} | {one.side.report.verdict.kind}
                for one in own
            )
            print(f"| {mesh} | {condition} | {len(own)} | {steps} | {pressure} | {others} | {busy} |")
    print()


def _highest(one: Recorded, name: str) -> str:
    values = [value for row in one.side.report.health if (value := getattr(row, name)) is not None]
    return f"{max(values):.0f}" if values else "?"


def _of(recorded: Sequence[Recorded], mesh: str, condition: str) -> list[Recorded]:
    return [one for one in recorded if (one.run.mesh, one.run.condition) == (mesh, condition)]


def drawn(
    recorded: Sequence[Recorded], mesh: str, before: str, after: str, random: np.random.Generator
) -> tuple[Recorded, Recorded] | None:
    """Two different runs; None if there are none."""
    ours, theirs = _of(recorded, mesh, before), _of(recorded, mesh, after)
    pairs = [(a, b) for a in ours for b in theirs if a is not b]
    return pairs[int(random.integers(len(pairs)))] if pairs else None


def block(one: Recorded, random: np.random.Generator) -> Side:
    steps = one.side.unrecorded_ms
    start = int(random.integers(0, len(steps) - BLOCK + 1))
    return replace(one.side, unrecorded_ms=steps[start : start + BLOCK], windows=[])


def times(recorded: Sequence[Recorded], pairs: int, random: np.random.Generator) -> None:
    print(f"2. {pairs} pairs of which only the load differs, and as many of which the newer has steps 10 % longer\n")
    print(
        "| older, newer | program | pairs | slower | faster | same | not comparable |"
        " judged all the same (--force): slower | faster |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    false = total = 0
    for kinds, wanted in ((ALARMS, pairs // len(ALARMS)), ((("alone", "longer"),), pairs)):
        for before, after in kinds:
            for place, mesh in enumerate(MESHES):
                count = wanted // len(MESHES) + (place < wanted % len(MESHES))
                found, forced = Counter[str](), Counter[str]()
                for _ in range(count):
                    pair = drawn(recorded, mesh, before, after, random)
                    if pair is None:
                        break
                    sides = [block(one, random) for one in pair]
                    found[compare(*sides).verdict] += 1
                    forced[compare(*sides, force=True).verdict] += 1
                words = [str(found[verdict]) for verdict in ("slower", "faster", "same", "not_comparable")]
                words += [str(forced[verdict]) for verdict in ("slower", "faster")]
                drew = sum(found.values())
                print(f"| {before}, {after} | {mesh} | {drew} | {' | '.join(words)} |", flush=True)
                if after != "longer":
                    false, total = false + found["slower"], total + drew
    print(f"\nfalsely slower: {false} of {total}, {100 * false / max(total, 1):.1f} %\n")


def baselines(recorded: Sequence[Recorded], pairs: int, random: np.random.Generator) -> None:
    print("3. whole runs against one and against a baseline of four, all runs alone\n")
    print(
        "| newer | program | pairs | slower | faster | not comparable"
        " | against four: slower | faster | not comparable |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for after in ("alone", "longer"):
        for mesh in MESHES:
            quiet, newer = _of(recorded, mesh, "alone"), _of(recorded, mesh, after)
            one, four = Counter[str](), Counter[str]()
            drew = 0
            for _ in range(pairs):
                if len(quiet) < 5 or not newer:
                    break
                new = newer[int(random.integers(len(newer)))]
                rest = [other for other in quiet if other is not new]
                chosen = [rest[int(i)] for i in random.permutation(len(rest))[:4]]
                base = from_summaries("four", [other.summary for other in chosen])
                one[compare(chosen[-1].side, new.side).verdict] += 1
                four[compare(base, new.side).verdict] += 1
                drew += 1
            words = [judged[verdict] for judged in (one, four) for verdict in ("slower", "faster", "not_comparable")]
            print(f"| {after} | {mesh} | {drew} | {' | '.join(map(str, words))} |", flush=True)
    print()


def shown(diff: RunDiff) -> set[str]:
    """Kinds of the rows that the writers show: not those of times below a share of the step."""
    least = LEAST_SHARE * max(diff.step.before or 0.0, diff.step.after or 0.0)
    return {row.kind for row in diff.told if row.unit != "ms" or abs(row.change or 0.0) >= least}


def structure(recorded: Sequence[Recorded]) -> None:
    print("4. what else is told of two whole runs of one program, none with longer steps: pairs with such a row\n")
    print("| program | runs | pairs | a count | an operator | a time or the pace | memory | a collective |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for mesh in MESHES:
        for words, wanted in (("both alone", ("alone",)), ("all", ("alone", "half", "over"))):
            own = [one for one in recorded if one.run.mesh == mesh and one.run.condition in wanted]
            told, pairs = Counter[str](), 0
            for one in own:
                for other in own:
                    if one is not other:
                        told.update(shown(compare(one.side, other.side)))
                        pairs += 1
            kinds = " | ".join(str(told[kind]) for kind in ("count", "kernel", "time", "memory", "collective"))
            print(f"| {mesh} | {words} | {pairs} | {kinds} |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--lanes", type=int, default=0, help="record, so many jobs at a time; 0: only judge")
    parser.add_argument("--cores", type=int, default=2, help="of a lane")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a job")
    parser.add_argument("--budget-s", type=float, default=230.0, help="no job is begun that may end later")
    parser.add_argument("--only", default="", metavar="WORD,...", help="runs of these programs or conditions")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20261130)
    args = parser.parse_args()
    if args.lanes:
        record_all(args)
    recorded = read(args.out)
    random = np.random.default_rng(args.seed)
    conditions(recorded)
    times(recorded, args.pairs, random)
    baselines(recorded, max(args.pairs // 10, 1), random)
    structure(recorded)


if __name__ == "__main__":
    main()
