"""All ranks wait for their input."""

from __future__ import annotations

from rankscope.diagnose.advice.base import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE", "LOADER"]

LOADER = ("num_workers", "workers", "prefetch_factor", "persistent_workers")
"""Arguments that make a data loader prefetch."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if any(d.cause == "input_stall" for d in case.stragglers):
        return []
    where = " on all ranks" if len(evidence.ranks) > 1 else ""
    text = (
        f"Load faster{where}: more num_workers with persistent_workers=True, a larger prefetch_factor; if the "
        "workers are busy, cheaper decoding or a cache."
    )
    return at_most(evidence, "load_faster", text, evidence.input_ms, "less than 1 ms a step in the data loader")


ADVICE = Advice(code="load_faster", find=_find, knobs={"load_faster": LOADER})
