"""Changes that the job could make, each with what a step would gain."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.gains.beside_calls import beside_calls
from rankscope.analysis.gains.context_parallel import uneven_attention
from rankscope.analysis.gains.doubled_batch import doubled_batch
from rankscope.analysis.gains.experts import expert_parallel
from rankscope.analysis.gains.links import slow_link
from rankscope.analysis.gains.plain_attention import plain_attention
from rankscope.analysis.gains.small_calls import small_calls
from rankscope.analysis.gains.tensor_parallel import tensor_parallel
from rankscope.analysis.gains.unaligned import unaligned_product
from rankscope.analysis.operators.chains import costliest_chain
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.changes import Changes
from rankscope.records.rows import RankSummary

__all__ = ["find_changes"]


def find_changes(
    windows: Sequence[WindowResult], ranks: Sequence[RankSummary], step_ms: float | None, uses: Sequence[str]
) -> Changes:
    """Return the changes whose object the traces show.

    Args:
        windows: of the run; those without a trusted replay are left out.
        ranks: their hosts and devices.
        step_ms: the job's step.
        uses: features that are in use (``Evidence.uses``).
    """
    return Changes(
        product=unaligned_product(windows),
        attention=plain_attention(windows),
        beside=beside_calls(windows),
        link=slow_link(windows, ranks),
        small_calls=small_calls(windows),
        batch=doubled_batch(windows, step_ms, uses),
        chain=costliest_chain([view for window in windows for view in window.views]),
        tensor=tensor_parallel(windows, ranks),
        experts=expert_parallel(windows),
        context=uneven_attention(windows),
    )
