"""Jobs with a known truth, and the grading of reports. Pure: nothing is launched here."""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope.records.report import ClusterReport

DUE_SHARE = 0.05
"""A planted rank must be named when the fault costs the unprofiled job this share of its step; below, naming it is
allowed but not due. A fault whose cost was not measured counts as due."""
FAULT_FROM = 25
"""Step from which the fault is active in a bare run."""


@dataclass(frozen=True)
class Job:
    name: str
    words: tuple[str, ...]
    """The script and its flags, without the fault."""
    fault: str = "none"
    truth: dict[int, str] = field(default_factory=dict)
    """Rank -> cause. If empty, any named rank is a false alarm."""
    job_wide: str | None = None
    """Kind of finding that is expected without a straggler."""
    partners: tuple[int, ...] = ()
    """Ranks that wait for the faulty one inside its tensor or pipeline group."""


@dataclass
class Measured:
    """Median step of the bare job, ms, without and with the fault."""

    healthy_ms: float
    faulty_ms: float

    @property
    def cost_ms(self) -> float:
        return self.faulty_ms - self.healthy_ms


def measure(steps: Sequence[float]) -> Measured:
    """Calculate from the times of all steps, without eleven at the start and three after the fault began."""
    return Measured(statistics.median(steps[9 : FAULT_FROM - 1]), statistics.median(steps[FAULT_FROM + 2 :]))


@dataclass
class Judgement:
    """Grade of one report."""

    named: dict[int, str]
    """Named rank -> named cause."""
    claimed_ms: float | None
    """Reported cost of the named ranks together, ms."""
    due: list[int]
    """Ranks that had to be named."""
    planted: int
    """Number of planted causes."""
    told: int
    """Number of them that were reported: in a finding on their rank, or on the job if they concern it."""
    right: bool
    """Whether all expected ranks were named with their causes, no others, and job-wide causes were reported."""
    abstained: bool
    """Whether the report has no verdict."""
    partners_blamed: list[int]


def judge(job: Job, report: ClusterReport, measured: Measured | None) -> Judgement:
    named: dict[int, str] = {}
    costs = []
    for rank in report.verdict.ranks:
        finding = next((f for f in report.findings if f.ranks == [rank]), None)  # accusations come before differences
        named[rank] = finding.kind if finding else report.verdict.cause or "unexplained"
        costs.append(finding.cost_ms_per_step if finding else None)
    due = list(job.truth)
    if measured is not None and measured.cost_ms < DUE_SHARE * measured.healthy_ms:
        due = []
    told = sum(any(f.kind == cause and rank in f.ranks for f in report.findings) for rank, cause in job.truth.items())
    told += job.job_wide is not None and any(f.kind == job.job_wide for f in report.findings)
    planted = len(job.truth) + (job.job_wide is not None)
    abstained = report.verdict.kind == "insufficient_data"
    right = (
        not abstained and set(due) <= set(named) and all(job.truth.get(rank) == cause for rank, cause in named.items())
    )
    return Judgement(
        named=named,
        claimed_ms=sum(c for c in costs if c is not None) if any(c is not None for c in costs) else None,
        due=due,
        planted=planted,
        told=told,
        right=right and (job.job_wide is None or told == planted),
        abstained=abstained,
        partners_blamed=[rank for rank in job.partners if rank in named],
    )


def label(job: Job, judgement: Judgement) -> dict[str, Any]:
    """Return the truth in the format of diagnosis.py's labels.json, which has the first faulty rank only."""
    if not job.truth:
        return {"rank": None, "cause": job.job_wide}
    rank, cause = next(iter(job.truth.items()))
    return {"rank": rank, "cause": cause, "verdict": "straggler" if rank in judgement.due else "any"}


def score(judged: Sequence[tuple[Job, Judgement]]) -> dict[str, tuple[int, int]]:
    """Return name of a measure -> (number right, total)."""
    accused = [(job.truth.get(rank), cause) for job, j in judged for rank, cause in j.named.items()]
    return {
        "precision of ranks": (sum(true is not None for true, _ in accused), len(accused)),
        "recall of ranks": (
            sum(rank in j.named for _, j in judged for rank in j.due),
            sum(len(j.due) for _, j in judged),
        ),
        "precision of causes": (sum(true == cause for true, cause in accused), len(accused)),
        "recall of causes": (sum(j.told for _, j in judged), sum(j.planted for _, j in judged)),
        "jobs without a straggler left alone": (
            sum(not j.named and not j.abstained for job, j in judged if not job.truth),
            sum(not job.truth for job, _ in judged),
        ),
    }


def trim(trace: Path) -> bytes:
    """Rewrite a gzipped trace without flow events, which are not read, with the highest compression."""
    with gzip.open(trace) as stream:
        whole: dict[str, Any] = json.load(stream)
    whole["traceEvents"] = [e for e in whole["traceEvents"] if e.get("ph") not in ("s", "t", "f")]
    return gzip.compress(json.dumps(whole, separators=(",", ":")).encode(), 9, mtime=0)
