"""Gradients that are reduced several times in a step, as without ``no_sync`` in gradient accumulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.evidence.program import REDUCER, host_ms
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.trace.columns import Category

__all__ = ["repeated_reductions"]

I64 = NDArray[np.int64]

_ROOTS = frozenset({"DistributedDataParallel.forward", "FSDP::root_pre_forward"})
"""Annotations of which each forward of the whole model has one."""


def repeated_reductions(windows: Sequence[WindowResult], *, device: bool) -> dict[str, Any]:
    """Return ``repeats`` and what belongs to it of the evidence, by the last window with repeated reductions; empty if
    there is none. ``device``: whether the job uses devices."""
    return next((numbers for window in reversed(windows) if (numbers := _in_window(window, device=device))), {})


def _in_window(window: WindowResult, *, device: bool) -> dict[str, Any]:
    if not window.step_count or not len(window.matched):
        return {}
    view, last = window.views[0], window.step_count - 1
    forwards = _forwards(view, last)
    members = _reductions(window, last)
    rows = window.matched.row[members].tolist()
    calls = view.trace.collectives
    sizes = [(calls.kind[row], int(calls.in_elements[row])) for row in rows]
    if forwards < 2 or not _equal_blocks(sizes, forwards):
        return {}
    repeated = (forwards - 1) / forwards
    on_all_ranks = np.isin(window.matched.call, window.matched.call[members])
    ranks = window.matched.size[window.matched.call[on_all_ranks]]
    transfer_ms = float((window.waits.transfer[on_all_ranks] / ranks).sum()) / 1e6
    host = 0.0 if device else float(np.mean([host_ms(view, REDUCER) for view in window.views]))
    return {
        "repeats": forwards,
        "repeat_calls": float(len(sizes) - len(sizes) // forwards),
        "repeat_ms": transfer_ms * repeated,
        "repeat_work_ms": host * repeated,
    }


def _forwards(view: RankView, step: int) -> int:
    """Return the number of forwards of the whole model in a step."""
    events = view.trace.events
    roots = (events.category == Category.USER_ANNOTATION) & view.named(lambda name: name in _ROOTS)
    return int((roots & (events.step == step)).sum())


def _reductions(window: WindowResult, step: int) -> I64:
    """Return the first rank's members of the matched calls that reduce gradients in a step."""
    members = window.matched.of(0)
    reduces = np.isin(np.array(window.matched.kind), ("all_reduce", "reduce_scatter"))
    chosen: I64 = members[(window.waits.step[members] == step) & reduces[window.matched.call[members]]]
    return chosen


def _equal_blocks(sizes: Sequence[tuple[str, int]], number: int) -> bool:
    """Return whether the sequence consists of so many blocks with the same entries in any order."""
    length, rest = divmod(len(sizes), number)
    if not sizes or rest:
        return False
    blocks = [sorted(sizes[start : start + length]) for start in range(0, len(sizes), length)]
    return all(block == blocks[0] for block in blocks)
