"""Device memory that lost data."""

from __future__ import annotations

from rankscope.diagnose.base.rule import Case, Rule, state_finding
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    return [
        state_finding(
            "ecc_errors",
            [row.rank],
            f"Rank {row.rank}'s GPU has uncorrected memory errors",
            [f"Since its driver was loaded: {row.ecc_uncorrected} uncorrected, {row.ecc_corrected or 0} corrected."],
            "high",
        )
        for row in evidence.health
        if row.ecc_uncorrected
    ]


RULE = Rule(
    kind="ecc_errors",
    noun="uncorrected memory errors",
    advice=(
        "Have the GPU reset and checked (nvidia-smi -q -d ECC,ROW_REMAPPER): such errors end jobs, more may follow.",
    ),
    find=_find,
)
