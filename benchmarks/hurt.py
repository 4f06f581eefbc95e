"""One damaged file among many: whether the planted fault is found as before, with the same cost.

    python benchmarks/hurt.py --ranks 64,256,1024 [--steps 10] [--layers 3]

Simulated TP 8 x DP jobs of which the ranks of a TP group share a host. In each a late rank, a slow host and a slow link
are planted in turn, and each job is analysed whole, with one file cut off, with one record lost, and with 1 % of the
ranks missing. Exit code 1 where a verdict changes, or a cost by more than 2 % of what it is without a bad file.
"""

from __future__ import annotations

import argparse
import copy
import re
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

A_HOST = 8
WITHIN = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="64", metavar="N,N", help="multiples of 8")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=3)
    arguments = parser.parse_args()
    print("| ranks | planted | " + " | ".join(HURTS) + " |\n| --- | --- |" + " --- |" * len(HURTS), flush=True)
    wrong = 0
    for size in map(int, arguments.ranks.split(",")):
        for planted in PLANTS:
            traces, culprits = world(planted, size, arguments.steps, arguments.layers)
            cells, before = [], None
            for hurt in HURTS.values():
                report = analyze(LoadResult(traces=hurt(traces, culprits), sources=[]), hta=False)
                before = before or report
                right = same(report, before, culprits)
                wrong += not right
                cells.append(said(report) + ("" if right else " (wrong)"))
            print(f"| {size:,} | {planted} | " + " | ".join(cells) + " |", flush=True)
    return min(wrong, 1)


def world(planted: str, size: int, steps: int, layers: int) -> tuple[list[RankTrace], list[int]]:
    """Return the traces, and the faulty ranks."""
    host = size // A_HOST // 3
    culprits = list(range(host * A_HOST, (host + 1) * A_HOST))
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
        by_hand(layers), Mesh(tp=A_HOST, dp=size // A_HOST), steps=steps, noise=0.02, faults=faults, links=links
    )
    for rank, trace in enumerate(traces):
        trace.meta.host = f"node{rank // A_HOST:04d}"
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


def same(report: ClusterReport, before: ClusterReport, culprits: list[int]) -> bool:
    own, was = report.verdict, before.verdict
    cost, usual = own.cost_ms_per_step or 0.0, was.cost_ms_per_step or 0.0
    found = (own.kind, named(report), own.cause) == (was.kind, culprits, was.cause)
    return found and not report.errors and abs(cost - usual) <= WITHIN * usual


def named(report: ClusterReport) -> list[int]:
    """Return the ranks of the verdict; those of a slow link are read from its sentence."""
    link = re.search(r"of ranks ([\d, ]+) take", report.verdict.sentence)
    return [int(rank) for rank in link[1].split(",")] if link else sorted(report.verdict.ranks)


def said(report: ClusterReport) -> str:
    verdict, ranks = report.verdict, named(report)
    who = f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else str(ranks[0]) if ranks else "nobody"
    return f"{who}, {verdict.cause or verdict.kind}, {verdict.cost_ms_per_step or 0:.2f}"


PLANTS = ("late rank", "slow host", "slow link")
HURTS: dict[str, Callable[[list[RankTrace], list[int]], list[RankTrace]]] = {
    "whole": whole,
    "one file cut off": cut_file,
    "one record lost": lost_record,
    "1 % of the ranks missing": missing_ranks,
}


if __name__ == "__main__":
    sys.exit(main())
