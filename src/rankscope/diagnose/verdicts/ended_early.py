"""No verdict, because the job left no usable trace: states what ended it, as far as ranks and launcher recorded
that."""

from __future__ import annotations

from rankscope.diagnose.base.memory import held, size
from rankscope.diagnose.rules.table import advice_of
from rankscope.listing import named_ranks, some_ranks
from rankscope.records.evidence import Evidence
from rankscope.records.rank import NOT_PLACED
from rankscope.records.report import Verdict
from rankscope.records.rows import MemoryRow

__all__ = ["ended_early"]

MOST_REASONS = 3
REPAIR = "Repair that first: the job's own output says more. Then run the same command again."
SHORTER = "Record earlier: -S schedule=short, or -S schedule.skip_first=1."
GATHER = (
    "On the node that kept it, run `rankscope gather` with the folder named above, once the run directory can be "
    "written; then `rankscope analyze` with the run directory."
)
DOCTOR = "Record again; `rankscope doctor` says what on this machine would keep a job from being recorded."


def ended_early(evidence: Evidence) -> Verdict:
    """Return the verdict of a job without a usable trace."""
    ended = evidence.ended
    lost = f" (missing: {some_ranks(evidence.missing)})" if evidence.missing else ""
    why = [_whose(reason, ranks) for reason, ranks in list(evidence.lost.items())[:MOST_REASONS]]
    if any(reason.startswith(NOT_PLACED) for reason in evidence.lost):
        return Verdict(
            kind="insufficient_data",
            reason="no_rank",
            sentence=f"No verdict: what was recorded is not in the run directory{lost}.",
            why=why,
            next=[GATHER],
        )
    if ended is None or ended.traces:
        return Verdict(
            kind="insufficient_data",
            reason="no_rank",
            sentence=f"No verdict: no rank left a usable trace{lost}.",
            why=why or ["The list of files says what was wrong with each."],
            next=[DOCTOR],
        )
    memory = [row for row in evidence.memory if row.window is None]
    why += [line for row in memory[:MOST_REASONS] for line in _out_of_memory(row)]
    steps = "before its first step" if not ended.steps else f"after {ended.steps:,} steps, before any was recorded"
    code = f", with exit code {ended.exit_code}" if ended.exit_code is not None else ""
    failed = bool(ended.exit_code) or bool(memory)
    return Verdict(
        kind="insufficient_data",
        reason="never_trained" if not ended.steps else "never_opened",
        sentence=f"No verdict: the job ended {steps}{code}.",
        why=[*why, *(_sentence(note) for note in ended.notes[:MOST_REASONS] if not why)],
        next=advice_of("out_of_memory") if memory else [REPAIR] if failed else [SHORTER, DOCTOR],
    )


def _out_of_memory(row: MemoryRow) -> list[str]:
    asked = f": an allocation of {size(row.requested_bytes)} failed" if row.requested_bytes is not None else ""
    of = f" of {size(row.device_bytes)}" if row.device_bytes else ""
    used = f"Rank {row.rank} ran out of device memory{asked}, with {size(row.end_allocated_bytes)}{of} in use."
    return [used, *held(row)]


def _whose(reason: str, ranks: list[int]) -> str:
    return _sentence(f"{named_ranks(ranks)}: {reason}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", ")")) else ".")
