"""Cause: the same operators run with other shapes; if shapes were not recorded, kernels with other launch grids."""

from __future__ import annotations

from rankscope.causes.base import Cause, WorkComparison, WorkExample

__all__ = ["CAUSE"]


def _more_work(work: WorkComparison) -> bool:
    return work.other_shapes > 0.2 * work.operators if work.shapes_known else work.other_grids


CAUSE = Cause(
    name="uneven_work",
    phrase="it has more data to work on than the other ranks",
    noun="more data to work on",
    advice=("Even out the batches: bucket by length, pack sequences, or use a sampler that balances tokens per rank.",),
    check="tokens per rank within 5 %",
    first_try="even out the batches: lengths, packing, a balancing sampler",
    needs=("cpu_op", "shapes or grids"),
    planted_by="demo: uneven_work",
    more_work=_more_work,
    examples=(
        WorkExample(claims=True, other_shapes=40),
        WorkExample(claims=False, other_shapes=10, other_grids=True),
        WorkExample(claims=True, shapes_known=False, other_grids=True),
        WorkExample(claims=False, shapes_known=False),
    ),
)
