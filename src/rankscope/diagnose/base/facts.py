"""Facts on a late rank, for advice that names it."""

from __future__ import annotations

from rankscope.causes.base import Facts
from rankscope.causes.table import DEVICE_CAUSES
from rankscope.causes.wording import amount, cause_record
from rankscope.listing import some_ranks
from rankscope.records.changes import UnevenAttention
from rankscope.records.evidence import Evidence, Suspect

__all__ = ["advice_for", "by_a_mask", "facts_of"]


def by_a_mask(uneven: UnevenAttention) -> str:
    """Return what to do about ranks that compute attention for longer, by their part of a causal mask."""
    return (
        "Shard the sequence in pairs of pieces from head and tail (context_parallel's default): attention takes rank "
        f"{some_ranks(uneven.late)} up to {amount(uneven.longest_ms)} a step, the mean is {amount(uneven.mean_ms)}."
    )


def facts_of(suspect: Suspect, cause: str, evidence: Evidence) -> Facts:
    """Return the facts on a late rank."""
    extra = max(suspect.operators, key=lambda o: o.ms - o.peers_ms, default=None)
    lines = suspect.lines.get(cause) or {}
    line = next(iter(lines), "")
    if not line and extra is not None and cause_record(cause).more_work is not None:
        line = extra.line
    return Facts(
        device=evidence.device,
        shapes=evidence.shapes,
        stacks=evidence.stacks,
        operator=extra.name if extra is not None else "",
        extra_calls=extra.calls - extra.peers_calls if extra is not None else 0.0,
        line=line,
    )


def advice_for(suspect: Suspect, cause: str, evidence: Evidence) -> list[str]:
    """Return the advice for a cause on this rank, the most promising first."""
    if cause in DEVICE_CAUSES and (uneven := evidence.changes.context) is not None and suspect.rank in uneven.late:
        return [by_a_mask(uneven)]
    return cause_record(cause).advice_for(facts_of(suspect, cause, evidence))
