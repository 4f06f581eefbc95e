"""Confusion table of the analysis on traces with known faults.

    python benchmarks/diagnosis.py FOLDER

FOLDER holds one folder of traces per case and labels.json: ``{"traces": {name: {"rank", "cause", "verdict"}}}``.
``rank`` null or "all": naming a rank is a false alarm. ``verdict`` "straggler": the rank must be the verdict's; "any":
the finding on that rank is due, the accusation optional. A cause without a rank must be among the findings.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from rankscope.analysis.pipeline import analyze
from rankscope.errors import RankscopeError
from rankscope.records.report import ClusterReport
from rankscope.trace.files.load import load_traces

HEAD = ("trace", "planted", "verdict", "named", "cost ms", "of step", "rank", "cause", "s")
WIDTH = (26, 20, 12, 20, 12, 8, 6, 6, 5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    labels: dict[str, dict[str, Any]] = json.loads((arguments.folder / "labels.json").read_text())["traces"]
    row(*HEAD)
    wrong: list[str] = []
    counts = {"due": 0, "named": 0, "false": 0, "quiet": 0, "cause": 0, "cause_due": 0}
    for name, label in sorted(labels.items()):
        begin = time.perf_counter()
        try:
            report = analyze(load_traces([arguments.folder / name], cache=False), hta=False)
        except RankscopeError as error:
            wrong.append(f"{name}: {error}")
            continue
        wrong += [f"{name}: {e.where}: {e.message}" for e in report.errors]
        rank_right, cause_right, notes = judge(label, report)
        wrong += [f"{name}: {note}" for note in notes]
        tally(counts, label, report, cause_right)
        verdict = report.verdict
        cost = verdict.cost_ms_per_step
        row(
            name,
            f"{label['rank'] if label['rank'] is not None else '-'} {label['cause'] or '-'}",
            verdict.kind,
            f"{','.join(map(str, verdict.ranks)) or '-'} {verdict.cause or '-'}",
            "-" if cost is None else f"{cost:.1f}±{verdict.cost_error_ms or 0:.1f}",
            "-" if cost is None or not verdict.step_ms else f"{100 * cost / verdict.step_ms:.0f} %",
            "ok" if rank_right else "WRONG",
            "-" if cause_right is None else "ok" if cause_right else "WRONG",
            f"{time.perf_counter() - begin:.1f}",
        )
    print(
        f"\nstragglers named {counts['named']} of {counts['due']} due; false alarms {counts['false']} of "
        f"{counts['quiet']} without one; causes {counts['cause']} of {counts['cause_due']}"
    )
    for line in wrong:
        print("WRONG", line)
    return 1 if wrong else 0


def judge(label: dict[str, Any], report: ClusterReport) -> tuple[bool, bool | None, list[str]]:
    """Return (rank right, cause right or None if none is expected, description of the error)."""
    rank, cause = label["rank"], label["cause"]
    named = report.verdict.ranks
    notes = []
    if not isinstance(rank, int):
        right = not named
        if named:
            notes.append(f"rank {named} accused of {report.verdict.cause}")
        told = None if cause is None else any(f.kind == cause for f in report.findings)
    else:
        right = named == [rank] or (not named and label.get("verdict") == "any")
        if not right:
            notes.append(f"rank {rank} expected, {named or 'nobody'} named")
        told = any(f.kind == cause and rank in f.ranks for f in report.findings)
        if named == [rank]:
            told = told and report.verdict.cause == cause
    if told is False:
        notes.append(
            f"{cause} expected; found {sorted({f.kind for f in report.findings})}, verdict {report.verdict.cause}"
        )
    return right, told, notes


def tally(counts: dict[str, int], label: dict[str, Any], report: ClusterReport, cause_right: bool | None) -> None:
    if not isinstance(label["rank"], int):
        counts["quiet"] += 1
        counts["false"] += bool(report.verdict.ranks)
    elif label.get("verdict") == "straggler":
        counts["due"] += 1
        counts["named"] += report.verdict.ranks == [label["rank"]]
    if cause_right is not None:
        counts["cause_due"] += 1
        counts["cause"] += cause_right


def row(*cells: str) -> None:
    print(" ".join(str(c).ljust(w) for c, w in zip(cells, WIDTH, strict=True)).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
