"""All ranks wait for their input."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.evidence import Evidence, SpareCpus
from rankscope.records.report import Action

__all__ = ["ADVICE", "LOADER"]

LOADER = ("num_workers", "workers", "prefetch_factor", "persistent_workers")
"""Arguments that make a data loader prefetch."""
CHECK = "less than 1 ms a step in the data loader"
FEW = 0.5
"""Share of the time in the loader. If workers can take over less, most of it remains whatever their number."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if any(d.cause == "input_stall" for d in case.stragglers):
        return []
    where = " on all ranks" if len(evidence.ranks) > 1 else ""
    spare = evidence.spare_cpus
    gain = evidence.input_ms if spare is None else min(evidence.input_ms, _taken_over(evidence, spare))
    if spare is not None and gain < FEW * evidence.input_ms:
        busy = (
            f"{100 * (1 - spare.idle):.0f} % of the {spare.cpus:g} CPUs that the job may use on {spare.host} are busy"
        )
        text = (
            f"Load with less CPU time{where}: cheaper decoding, a cache, or more CPUs. {busy}: more num_workers would "
            f"gain at most {amount(gain)}."
        )
        return at_most(evidence, "load_cheaper", text, evidence.input_ms, CHECK)
    if "loads_in_training" in evidence.uses and "loads_in_workers" not in evidence.uses:
        text = (
            f"Load in workers{where}: the DataLoader makes its batches in the training process (num_workers=0). Give "
            "it num_workers of 2 or more, with persistent_workers=True."
        )
        return at_most(evidence, "load_faster", text, gain, CHECK)
    text = (
        f"Load faster{where}: more num_workers with persistent_workers=True, a larger prefetch_factor; if the "
        "workers are busy, cheaper decoding or a cache."
    )
    return at_most(evidence, "load_faster", text, gain, CHECK)


def _taken_over(evidence: Evidence, spare: SpareCpus) -> float:
    """Return what workers can gain at most: they need the CPU time that loading needs now, so the step cannot become
    shorter than all CPU time of a step divided by the CPUs. What recording itself takes is added."""
    return spare.idle * evidence.whole_step_ms + evidence.added_ms


ADVICE = Advice(code="load_faster", find=_find, knobs={"load_faster": LOADER})
