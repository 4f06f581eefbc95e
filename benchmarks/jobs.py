"""Jobs with a planted truth, and how a report is held against it. Pure: nothing is launched here."""

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
"""The step at which a bare run begins to be faulty."""


@dataclass(frozen=True)
class Job:
    name: str
    words: tuple[str, ...]
    """The script and its flags, without the fault."""
    fault: str = "none"
    truth: dict[int, str] = field(default_factory=dict)
    """Rank -> cause. Empty: naming anyone is a false alarm."""
    job_wide: str | None = None
    """A finding that is due without a straggler."""
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
    """From the times of all steps but the first: ten to settle at the start, three after the fault has begun."""
    return Measured(statistics.median(steps[9 : FAULT_FROM - 1]), statistics.median(steps[FAULT_FROM + 2 :]))


@dataclass
class Judgement:
    """One report against one truth."""

    named: dict[int, str]
    """Rank accused -> cause it is accused of."""
    claimed_ms: float | None
    """What the accused ranks cost together."""
    due: list[int]
    """Ranks that had to be named."""
    planted: int
    """Causes planted ..."""
    told: int
    """... and told: in a finding on their rank, or without a straggler where they concern the job."""
    right: bool
    """A verdict was given: all due ranks named, no other, each with its cause; job-wide causes told."""
    abstained: bool
    """The report found too little for a verdict."""
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
    """The truth in the words of diagnosis.py's labels.json; of several bad ranks it can tell the first only."""
    if not job.truth:
        return {"rank": None, "cause": job.job_wide}
    rank, cause = next(iter(job.truth.items()))
    return {"rank": rank, "cause": cause, "verdict": "straggler" if rank in judgement.due else "any"}


def score(judged: Sequence[tuple[Job, Judgement]]) -> dict[str, tuple[int, int]]:
    """Name of a measure -> (right, of)."""
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
    """A gzipped trace without flow events, which nothing reads, packed as small as gzip can."""
    with gzip.open(trace) as stream:
        whole: dict[str, Any] = json.load(stream)
    whole["traceEvents"] = [e for e in whole["traceEvents"] if e.get("ph") not in ("s", "t", "f")]
    return gzip.compress(json.dumps(whole, separators=(",", ":")).encode(), 9, mtime=0)
