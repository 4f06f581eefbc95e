"""One damaged file among many: whether the planted fault is found as before, with the same cost.

    python benchmarks/hurt.py --ranks 8,64,256,512,1024,4096 [--steps 10] [--layers 3] [--out results.json]

Simulated TP 8 x DP jobs of which the ranks of a TP group share a host (of 8 ranks: TP 2, hosts of 2). In each a late
rank, a slow host and a slow link are planted in turn, and each job is analysed whole, with one file cut off, with one
record lost, and with 1 % of the ranks, but at least one, missing. Exit code 1 where another rank, host or link or
another cause is named than was planted, or a cost differs by more than 2 % from what it is without a bad file. It goes
on with what ``--out`` does not have; each row has a process of its own.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "analysis"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

from analysis.hurt import keep, lose
from worlds import MS, Fault, Item, Mesh, by_hand, simulate

from rankscope.analysis.pipeline import analyze
from rankscope.records.report import ClusterReport
from rankscope.trace.columns import RankTrace, Steps
from rankscope.trace.files.load import LoadResult

A_HOST, SMALL_HOST = 8, 2
"""Ranks; the small ones where the job would have a single host otherwise."""
WITHIN = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="64", metavar="N,N", help="8, or multiples of 64 or more")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--out", type=Path, help="what was found, to go on from")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(row(arguments.one, int(arguments.ranks), arguments.steps, arguments.layers)))
        return 0
    out: Path | None = arguments.out
    kept: dict[str, list[str]] = json.loads(out.read_text()) if out and out.exists() else {}
    print("| ranks | planted | " + " | ".join(HURTS) + " |\n| --- | --- |" + " --- |" * len(HURTS), flush=True)
    wrong = 0
    for size in map(int, arguments.ranks.split(",")):
        for planted in PLANTS:
            shape = ["--steps", str(arguments.steps), "--layers", str(arguments.layers)]
            key = " ".join([str(size), planted, *shape])
            if key not in kept:
                words = [sys.executable, __file__, "--one", planted, "--ranks", str(size), *shape]
                done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
                kept[key] = json.loads(done.stdout.splitlines()[-1])
                if out:
                    out.write_text(json.dumps(kept))
            wrong += sum(cell.endswith(WRONG) for cell in kept[key])
            print(f"| {size:,} | {planted} | " + " | ".join(kept[key]) + " |", flush=True)
    return min(wrong, 1)


def row(planted: str, size: int, steps: int, layers: int) -> list[str]:
    """Return what is said of one job in each state of its files."""
    traces, culprits = world(planted, size, steps, layers)
    cells, before = [], None
    for hurt in HURTS.values():
        report = analyze(LoadResult(traces=hurt(traces, culprits), sources=[]), hta=False)
        before = before or report
        cells.append(said(report) + ("" if same(report, before, planted, culprits) else WRONG))
    return cells


def world(planted: str, size: int, steps: int, layers: int) -> tuple[list[RankTrace], list[int]]:
    """Return the traces, and the faulty ranks."""
    own = A_HOST if size > A_HOST else SMALL_HOST
    host = size // own // 3
    culprits = list(range(host * own, (host + 1) * own))
    faults: list[Fault] = []
    links: dict[tuple[str, int], float] = {}
    if planted == "late rank":
        culprits = [size // 3]
        faults = [Fault(culprits[0], Item("fetch", host=20 * MS))]
    elif planted == "slow host":
        faults = [Fault(rank, Item("fetch", host=20 * MS)) for rank in culprits]
    else:
        links = {("tp", host): 6.0}
    traces = simulate(
        by_hand(layers), Mesh(tp=own, dp=size // own), steps=steps, noise=0.02, faults=faults, links=links
    )
    for rank, trace in enumerate(traces):
        trace.meta.host = f"node{rank // own:04d}"
    return traces, culprits


def whole(traces: list[RankTrace], _culprits: list[int]) -> list[RankTrace]:
    return traces


def cut_file(traces: list[RankTrace], culprits: list[int]) -> list[RankTrace]:
    """Remove the last four of ten steps of one rank from its file."""
    rank = _innocent(len(traces), culprits)
    own = copy.deepcopy(traces[rank])
    kept = max(len(own.steps) * 6 // 10, 2)
    last = int(own.steps.end[kept - 1])
    keep(own, own.events.start < last)
    own.steps = Steps(own.steps.number[:kept], own.steps.start[:kept], own.steps.duration[:kept])
    own.events.step = np.where(own.events.step < kept, own.events.step, -1).astype(np.int32)
    return [own if trace is traces[rank] else trace for trace in traces]


def lost_record(traces: list[RankTrace], culprits: list[int]) -> list[RankTrace]:
    rank = _innocent(len(traces), culprits)
    own = copy.deepcopy(traces[rank])
    lose(own, [len(own.collectives) // 2])
    return [own if trace is traces[rank] else trace for trace in traces]


def missing_ranks(traces: list[RankTrace], culprits: list[int]) -> list[RankTrace]:
    others = np.setdiff1d(np.arange(len(traces)), culprits)
    gone = np.random.default_rng(0).choice(others, max(len(traces) // 100, 1), replace=False)
    return [trace for rank, trace in enumerate(traces) if rank not in gone]


def _innocent(size: int, culprits: list[int]) -> int:
    return next(rank for rank in range(size // 2, size) if rank not in culprits)


def same(report: ClusterReport, before: ClusterReport, planted: str, culprits: list[int]) -> bool:
    own = report.verdict
    cost, usual = own.cost_ms_per_step or 0.0, before.verdict.cost_ms_per_step or 0.0
    found = (own.cause or own.kind) == PLANTS[planted] and own.kind == before.verdict.kind
    return found and named(report) == culprits and not report.errors and abs(cost - usual) <= WITHIN * usual


def named(report: ClusterReport) -> list[int]:
    """Return the ranks of the verdict; those of a slow link are read from its sentence."""
    link = re.search(r"of ranks ([-\d, ]+) take", report.verdict.sentence)
    if link is None:
        return sorted(report.verdict.ranks)
    spans = (part.split("-") for part in link[1].split(","))
    return [rank for span in spans for rank in range(int(span[0]), int(span[-1]) + 1)]


def said(report: ClusterReport) -> str:
    verdict, ranks = report.verdict, named(report)
    who = f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else str(ranks[0]) if ranks else "nobody"
    return f"{who}, {verdict.cause or verdict.kind}, {verdict.cost_ms_per_step or 0:.2f}"


PLANTS = {"late rank": "input_stall", "slow host": "input_stall", "slow link": "comm_bound"}
"""What is planted -> its cause, or the kind of verdict."""
WRONG = " (wrong)"
HURTS: dict[str, Callable[[list[RankTrace], list[int]], list[RankTrace]]] = {
    "whole": whole,
    "one file cut off": cut_file,
    "one record lost": lost_record,
    "1 % of the ranks missing": missing_ranks,
}


if __name__ == "__main__":
    sys.exit(main())
