"""Facts on a late rank, for advice that names it."""

from __future__ import annotations

from rankscope.causes.base import Facts
from rankscope.causes.wording import cause_record
from rankscope.records.evidence import Evidence, Suspect

__all__ = ["advice_for", "facts_of"]


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
    return cause_record(cause).advice_for(facts_of(suspect, cause, evidence))
