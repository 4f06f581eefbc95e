"""All advice. To add a piece: a file in one of these folders, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.diagnose.advice import input_for_all, late_rank, memory, pinned_memory, record_more
from rankscope.diagnose.advice.calls import (
    experts,
    hide_transfers,
    links,
    pipeline_schedule,
    reduce_once,
    tensor_parallel,
)
from rankscope.diagnose.advice.kernels import (
    attention,
    beside_calls,
    busy_operator,
    compile_program,
    fused_optimizer,
    larger_batch,
    near_the_peak,
    products,
    tensor_cores,
)
from rankscope.diagnose.base.advice import Advice, mends
from rankscope.diagnose.base.contention import by_others, is_contended
from rankscope.diagnose.base.decision import slowed_by_others
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["OURS", "advise", "knobs"]

OURS: tuple[Advice, ...] = (
    late_rank.ADVICE,
    input_for_all.ADVICE,
    pinned_memory.ADVICE,
    memory.ADVICE,
    memory.ROOM,
    busy_operator.ADVICE,
    compile_program.ADVICE,
    fused_optimizer.ADVICE,
    tensor_cores.ADVICE,
    products.ADVICE,
    attention.ADVICE,
    reduce_once.ADVICE,
    hide_transfers.ADVICE,
    hide_transfers.KEPT,
    links.ADVICE,
    links.SMALL,
    beside_calls.ADVICE,
    tensor_parallel.ADVICE,
    tensor_parallel.CONTEXT,
    experts.ADVICE,
    larger_batch.ADVICE,
    pipeline_schedule.ADVICE,
    memory.FULL,
    near_the_peak.ADVICE,
    record_more.ADVICE,
)
"""With equal gain, the first needs the least effort. Late ranks come before all others: while one delays the job, no
other gain can be determined."""


def advise(case: Case, failed: Callable[[str, Exception], None] | None = None) -> list[Action]:
    """Return the actions: late ranks first, then pipeline stages, then in order of gain, then those of unknown gain.

    While other processes take the job's CPUs or devices there is no advice on the job, because its times are then not
    its own. If its own threads contend, they are.

    Args:
        case: the evidence and the decisions.
        failed: called with the code and the error of advice that raises one. Without it, the error is raised.
    """
    evidence = case.evidence
    if not case.stragglers and (
        slowed_by_others(evidence) or (is_contended(evidence) and by_others(evidence) is not False)
    ):
        return []
    found = [action for advice in OURS for action in _guarded(advice, case, failed)]

    def place(action: Action) -> tuple[bool, bool, float]:
        return not mends(action, case), action.code not in pipeline_schedule.CODES, -(action.saves_ms or 0.0)

    return sorted(found, key=place)


def knobs() -> dict[str, tuple[str, ...]]:
    """Return code of an action -> names of the arguments that it would change."""
    return {code: names for advice in OURS for code, names in advice.knobs.items()}


def _guarded(advice: Advice, case: Case, failed: Callable[[str, Exception], None] | None) -> list[Action]:
    try:
        return advice.find(case)
    except Exception as error:
        if failed is None:
            raise
        failed(advice.code, error)
        return []
