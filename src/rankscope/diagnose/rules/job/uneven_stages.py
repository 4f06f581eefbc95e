"""One pipeline stage computes longer than the others."""

from __future__ import annotations

from rankscope.diagnose.base.rule import Case, Rule, in_all_units
from rankscope.diagnose.base.stages import long_stage
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    found = long_stage(case.evidence)
    if found is None:
        return []
    gain = in_all_units(found.cost_ms, case.evidence)
    return [
        Finding(
            id="uneven-stages",
            kind="uneven_stages",
            ranks=found.ranks,
            cost_ms_per_step=found.cost_ms,
            confidence="medium",
            title=f"Pipeline {found.name} computes longest",
            evidence=[f"At the level of the other stages the step would save {gain}, by replay.", *found.lines],
            advice=[],
        )
    ]


RULE = Rule(
    kind="uneven_stages",
    noun="uneven pipeline stages",
    advice=(
        "Move layers to stages that compute less, or take off the longest stage what only it runs.",
        "If its layers are as large as the others', look at its device or host: the same work takes longer there.",
    ),
    find=_find,
)
