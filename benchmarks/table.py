"""The stored result of one recorded job, and its line in the table."""

from __future__ import annotations

import dataclasses
from typing import Any

from jobs import Job, Judgement, Measured

from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport

HEAD = (
    "job",
    "capture",
    "planted",
    "named",
    "right",
    "told",
    "windows",
    "clock",
    "matched",
    "claimed",
    "measured",
    "s",
)
WIDTH = (32, 8, 32, 32, 6, 5, 8, 8, 8, 12, 18, 5)


def facts(
    job: Job,
    how: str,
    manifest: RunManifest,
    report: ClusterReport,
    judgement: Judgement,
    measured: Measured | None,
    seconds: float,
) -> dict[str, Any]:
    """For results.json. ``aligned``: all ranks agreed on one window and recorded the same steps."""
    records = manifest.windows[0].records
    spans = {(r.first_step, r.last_step) for r in records}
    return {
        "capture": how,
        **dataclasses.asdict(job),
        **dataclasses.asdict(judgement),
        "measured": dataclasses.asdict(measured) if measured else None,
        "aligned": len(spans) == 1 and all(r.status == "ok" and r.agreed for r in records),
        "ranks": [[r.first_step, r.last_step, r.status, r.reason, r.notes] for r in records],
        "run": dataclasses.asdict(report.run),
        "clock": dataclasses.asdict(report.clock),
        "collectives": dataclasses.asdict(report.collectives),
        "verdict": dataclasses.asdict(report.verdict),
        "findings": [[f.kind, f.ranks, f.cost_ms_per_step, f.title] for f in report.findings],
        "errors": [f"{e.where}: {e.message}" for e in report.errors],
        "seconds": seconds,
    }


def show(entry: dict[str, Any]) -> None:
    measured, claimed = entry["measured"], entry["claimed_ms"]
    clock, matched = entry["clock"]["error_us"], entry["collectives"]["matched_pct"]
    cost = "-"
    if measured:
        faulty, healthy = measured["faulty_ms"], measured["healthy_ms"]
        cost = f"{faulty:.1f}-{healthy:.1f}={faulty - healthy:.1f}"
    row(
        entry["name"],
        entry["capture"],
        _pairs(entry["truth"]) or entry["job_wide"] or "-",
        _pairs(entry["named"]) or entry["verdict"]["kind"],
        ("ok" if entry["right"] else "WRONG") + ("*" if entry["partners_blamed"] else ""),
        f"{entry['told']}/{entry['planted']}",
        "same" if entry["aligned"] else "DIFFER",
        "-" if clock is None else f"{clock:.0f} us",
        "-" if matched is None else f"{matched:.1f} %",
        "-" if claimed is None else f"{claimed:.1f}±{entry['verdict']['cost_error_ms'] or 0.0:.1f}",
        cost,
        f"{entry['seconds']:.0f}",
    )
    for error in entry["errors"]:
        print(f"  analysis failed: {error}")


def _pairs(found: dict[int, str]) -> str:
    return ", ".join(f"{rank} {cause}" for rank, cause in sorted(found.items()))


def row(*cells: str) -> None:
    print(" ".join(str(c).ljust(w) for c, w in zip(cells, WIDTH, strict=False)).rstrip(), flush=True)
