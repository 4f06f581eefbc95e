"""Comparison of runs: explained differences of real pairs, false differences, and speed.

    python benchmarks/compare.py FOLDER [FOLDER] [--pairs 1000] [--ranks 1024] [--seed 20261130] [--only 1,2,3,4]

The folders hold the traces of runs of the same job with and without a planted fault (PAIRS names them). Four tables
(compare_jobs.py has those of real jobs with thousands of unrecorded steps):

1. each pair: the change of the step, what the replay attributes to host, device and transfers, how much of the change
   that explains, and the largest change of compute, of counts, and of findings;
2. pairs drawn from the recorded steps of one healthy run each, with replacement: how often is a step, a kernel or a
   count told;
3. one kernel made longer by 5 and by 1 %: how often is it told; all steps made longer: how often are they slower;
4. two summaries of many ranks: how long does it take to write, read and compare them?
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from rankscope.compare.compare import compare
from rankscope.compare.rows.uses import MOSTLY
from rankscope.compare.sides.side import Side, from_summaries, read_side, summary_of
from rankscope.compare.steps import compare_steps
from rankscope.records.codec import from_json
from rankscope.records.rank_window import RankWindow
from rankscope.records.run_summary import RunSummary

PAIRS = (
    ("ddp_healthy", "ddp_slow_gpu"),
    ("fsdp2_gpu_bound", "fsdp2_gpu_bound_slow_gpu"),
    ("fsdp2_healthy", "fsdp2_slow_gpu"),
    ("ddp_healthy", "ddp_grad_accum"),
    ("ddp_healthy", "ddp_dataloader_stall"),
    ("ddp_healthy", "ddp_pageable_h2d"),
    ("fsdp2_healthy", "fsdp2_host_pause"),
    ("fsdp2_healthy", "fsdp2_empty_cache"),
    ("ddp_healthy", "ddp_uneven_sequences"),
    ("pp4_healthy", "pp4_host_pause"),
)
"""Pairs of runs. The last two have the same step, so that nothing is to be explained."""
LEAST_MS = 5.0
"""Change of a step, below which there is nothing to be explained."""
HEALTHY = ("ddp_gpu_bound", "fsdp2_gpu_bound", "ddp_healthy", "fsdp2_healthy")
LEAST_SHARE = 0.05
"""Of compute, of the kernel that is made longer."""


class Runs(dict[str, Side]):
    """Runs by name, read at first use."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    def __missing__(self, name: str) -> Side:
        self[name] = read_side(next((f / name for f in self.folders if (f / name).is_dir()), self.folders[0] / name))
        return self[name]


def explained(sides: Runs) -> None:
    print("1. pairs; ms a step\n")
    print("| pair | step | host | device | transfer | explained | compute | counts | verdict |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    good = total = 0
    for before, after in PAIRS:
        if not any((folder / before).is_dir() for folder in sides.folders):
            continue
        diff = compare(sides[before], sides[after])
        parts = Counter[str]({part.kind: part.ms for part in diff.parts})
        change = diff.step.change or 0.0
        share = 100 * (change - parts["unexplained"]) / change if diff.parts and abs(change) > LEAST_MS else None
        total += share is not None
        good += share is not None and abs(share - 100) <= 15
        kernel = next((row for row in diff.told if row.kind == "kernel"), None)
        counts = ", ".join(f"{r.name} {r.before:.0f} -> {r.after:.0f}" for r in diff.told if r.kind == "count")
        print(
            f"| {before} -> {after} | {change:+.1f} | {parts['host']:+.1f} | {parts['device']:+.1f} | "
            f"{parts['transfer']:+.1f} | {'-' if share is None else f'{share:.0f} %'} | "
            f"{f'{kernel.status} {kernel.name[:48]} {kernel.change:+.1f}' if kernel else '-'} | {counts or '-'} | "
            f"{diff.verdict} |",
            flush=True,
        )
    print(f"\nexplained within 15 % in {good} of {total} pairs whose step differs\n")


def drawn(own: RankWindow, steps: np.ndarray) -> RankWindow:
    """The rank with these of its steps, in this order."""
    place = {name: np.array(column) for name, column in vars(own.steps).items()}
    table = replace(own.steps, **{name: column[steps].tolist() for name, column in place.items()})
    table.number = list(range(len(steps)))
    kept = {name: column for name, column in vars(own.work).items() if column}
    work: dict[str, list[int]] = {name: [] for name in kept}
    by_step: dict[int, list[int]] = {}
    for row, step in enumerate(own.work.step):
        by_step.setdefault(step, []).append(row)
    for number, step in enumerate(steps.tolist()):
        for row in by_step.get(step, []):
            for name, column in kept.items():
                work[name].append(number if name == "step" else column[row])
    return replace(own, steps=table, work=replace(own.work, **work))


def resampled(side: Side, random: np.random.Generator) -> Side:
    steps = len(side.ranks[0].steps.number)
    chosen = random.integers(0, steps, steps)
    return replace(side, ranks=[drawn(own, chosen) for own in side.ranks], windows=[])


def false_alarms(sides: Runs, pairs: int, random: np.random.Generator) -> None:
    print(f"2. pairs drawn from one run's recorded steps, {pairs} in all\n")
    print("| run | pairs | slower | faster | a kernel told | largest, ms | a count told |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in HEALTHY:
        verdicts, kernels, counts, largest = Counter[str](), 0, 0, 0.0
        for _ in range(pairs // len(HEALTHY)):
            diff = compare(resampled(sides[name], random), resampled(sides[name], random))
            verdicts[diff.verdict] += 1
            rows = [row for row in diff.told if row.kind == "kernel"]
            big = [abs(row.change or 0.0) for row in rows if abs(row.change or 0.0) > 0.005 * (diff.step.before or 1.0)]
            kernels += bool(big)
            largest = max([largest, *(abs(row.change or 0.0) for row in rows)])
            counts += any(row.kind == "count" for row in diff.told)
        shown = f"{verdicts['slower']} | {verdicts['faster']} | {kernels} | {largest:.2f} | {counts}"
        print(f"| {name} | {pairs // len(HEALTHY)} | {shown} |", flush=True)
    print("\nA kernel counts as told when its change is over 0.5 % of the step: smaller ones are pooled.\n")


def power(sides: Runs, pairs: int, random: np.random.Generator) -> None:
    print("3. the longest kernel apart from communication made longer on all ranks; two draws of one run\n")
    print("| run | kernel | 5 % longer, told | 1 % longer, told |")
    print("| --- | --- | --- | --- |")
    for name in ("ddp_gpu_bound", "ddp_healthy", "fsdp2_gpu_bound"):
        side = sides[name]
        diff = compare(resampled(side, random), resampled(side, random))
        rows = [row for row in diff.rows if row.kind == "kernel"]
        whole = sum(row.before or 0.0 for row in rows)
        row = max((row for row in rows if row.name in apart(side)), key=lambda r: r.before or 0.0)
        if (row.before or 0.0) < LEAST_SHARE * whole:
            continue
        cells = []
        for factor in (1.05, 1.01):
            told = 0
            for _ in range(pairs):
                after = resampled(side, random)
                for own in after.ranks:
                    lengthen(own, row.name, factor)
                found = compare(resampled(side, random), after).told
                told += any(r.name == row.name and r.kind == "kernel" for r in found)
            cells.append(f"{100 * told / pairs:.0f} %")
        share = 100 * (row.before or 0.0) / whole
        print(f"| {name} | {row.name[:60]}, {share:.0f} % | {cells[0]} | {cells[1]} |", flush=True)
    print()


def apart(side: Side) -> set[str]:
    """Operators and shapes of which nearly all kernels ran beside no communication, on all ranks."""
    shares: dict[str, list[float]] = {}
    for own in side.ranks:
        runs: dict[str, list[int]] = {}
        for row, (alone, count) in enumerate(zip(own.work.alone, own.work.count, strict=True)):
            total = runs.setdefault(spelled(own, row), [0, 0])
            total[0], total[1] = total[0] + alone, total[1] + count
        for name, (alone, count) in runs.items():
            shares.setdefault(name, []).append(alone / count)
    return {name for name, own in shares.items() if min(own) >= MOSTLY}


def slower_steps(sides: Runs, pairs: int, random: np.random.Generator) -> None:
    print(f"\n3b. all steps made longer, by how much they vary in one run; {pairs} draws of two\n")
    print("| run | recorded steps | 10 % longer, slower | 5 % longer, slower | as they are, slower or faster |")
    print("| --- | --- | --- | --- | --- |")
    for name in HEALTHY:
        counted = []
        for factor in (1.10, 1.05, 1.0):
            told = 0
            for _ in range(pairs):
                after = resampled(sides[name], random)
                for own in after.ranks:
                    own.steps.length_ns[:] = [round(ns * factor) for ns in own.steps.length_ns]
                _, _, row = compare_steps(resampled(sides[name], random), after)
                told += row.told and (factor == 1.0 or (row.change or 0.0) > 0)
            counted.append(f"{100 * told / pairs:.0f} %")
        print(f"| {name} | {len(sides[name].step_ms)} | {' | '.join(counted)} |", flush=True)
    print()


def lengthen(own: RankWindow, name: str, factor: float) -> None:
    for row in range(len(own.work.operator)):
        if spelled(own, row) == name:
            for column in (own.work.total_ns, own.work.alone_ns, own.work.alone_median_ns):
                column[row] = round(column[row] * factor)


def spelled(own: RankWindow, row: int) -> str:
    return f"{own.text(own.work.operator[row])} {own.text(own.work.shapes[row])}".strip()


def many_ranks(sides: Runs, ranks: int) -> None:
    """Both runs made larger by copies of their two ranks, read from JSON as baselines are."""
    print(f"4. {ranks} ranks, CPU time in s\n")
    print("| runs | JSON of both, MB | write | read | compare | verdict |")
    print("| --- | --- | --- | --- | --- | --- |")
    for names in (("ddp_gpu_bound", "ddp_gpu_bound"), ("ddp_healthy", "ddp_slow_gpu")):
        begun = time.process_time()
        texts = []
        for name in names:
            own = sides[name].ranks
            copies = [replace(own[rank % len(own)], rank=rank) for rank in range(ranks)]
            texts.append(json.dumps(summary_of(replace(sides[name], ranks=copies)), default=vars))
        written = time.process_time()
        read = [from_summaries(name, [from_json(RunSummary, text)]) for name, text in zip(names, texts, strict=True)]
        done = time.process_time()
        diff = compare(*read)
        took = f"{written - begun:.1f} | {done - written:.1f} | {time.process_time() - done:.1f}"
        print(f"| {' -> '.join(names)} | {sum(map(len, texts)) / 1e6:.0f} | {took} | {diff.verdict} |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--only", default="1,2,3,4", help="tables")
    given = parser.parse_args()
    sides, only = Runs(given.folders), given.only.split(",")
    if "1" in only:
        explained(sides)
    if "2" in only:
        false_alarms(sides, given.pairs, np.random.default_rng(given.seed))
    if "3" in only:
        power(sides, max(given.pairs // 10, 5), np.random.default_rng(given.seed + 1))
        slower_steps(sides, max(given.pairs // 5, 5), np.random.default_rng(given.seed + 2))
    if "4" in only:
        many_ranks(sides, given.ranks)


if __name__ == "__main__":
    main()
