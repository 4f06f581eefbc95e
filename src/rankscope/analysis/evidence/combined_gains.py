"""Step time after several changes. Gains do not add up, so each replay includes one change more than the last.

A change modifies the work in the graph: that of a late rank is reduced to the level of its peers, kernels of one kind
or host time of one kind are removed, or transfers take no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.beside_calls import undisturbed
from rankscope.analysis.gains.context_parallel import evened
from rankscope.analysis.gains.experts import without_exchanges
from rankscope.analysis.gains.pageable import without_pageable
from rankscope.analysis.gains.plain_attention import fused
from rankscope.analysis.gains.small_calls import merged
from rankscope.analysis.gains.tensor_parallel import without_transfers
from rankscope.analysis.gains.unaligned import pad_products
from rankscope.analysis.gains.work_gains import mean_gain_ms, priced, without_group
from rankscope.analysis.operators.groups import MEMORY_BOUND, OPTIMIZER, PLAIN, SHARDING
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.causes import allocator, input_stall
from rankscope.records.report import Action

__all__ = ["level", "steps_then"]

F64 = NDArray[np.float64]
Change = Callable[[WindowResult, F64], F64]
"""Work per edge -> work per edge after a change."""


def steps_then(actions: Sequence[Action], windows: Sequence[WindowResult], step_ms: float | None) -> list[float | None]:
    """Return the step time, ms, after each action and all before it; None from the first that cannot be replayed.

    Args:
        actions: in the order in which they are done.
        windows: of the run.
        step_ms: the step time in the report.
    """
    found: list[float | None] = [None] * len(actions)
    replayed = priced(windows)
    if not actions or step_ms is None or actions[0].saves_ms is None:
        return found
    left = found[0] = max(step_ms - actions[0].saves_ms, 0.0)
    change = _change(actions[0])
    if not replayed or change is None:
        return found
    works = [change(w, w.replay.graph.work) for w in replayed if w.replay is not None]
    before = _gain(replayed, works)
    for place, action in enumerate(actions[1:], 1):
        change = _change(action)
        if change is None or action.saves_ms is None:
            break
        works = [change(w, work) for w, work in zip(replayed, works, strict=True)]
        after = _gain(replayed, works)
        left = found[place] = max(left - min(max(after - before, 0.0), action.saves_ms), 0.0)
        before = max(after, before)
    return found


def _gain(windows: Sequence[WindowResult], works: Sequence[F64]) -> float:
    """Return the mean gain over the steps, ms."""
    pairs = zip(windows, works, strict=True)
    return mean_gain_ms((w.replay, w.replay.gains(work)) for w, work in pairs if w.replay is not None)


def _change(action: Action) -> Change | None:
    if action.code.startswith("mend_"):
        return lambda window, work: level(window, work, action.ranks)
    return _CHANGES.get(action.code)


def level(window: WindowResult, work: F64, ranks: Sequence[int]) -> F64:
    """Limit the work per edge of these ranks, between two calls, to that of their peers.

    Work that is less than the peers' is kept, because the peer may be late too.
    """
    replay = window.replay
    assert replay is not None
    changed: F64 = work.copy()
    for column, view in enumerate(window.views):
        if view.rank in ranks:
            even = replay.equalised(column)
            plain = replay.graph.work[even.edges]
            ratio = np.divide(even.work, plain, out=np.ones_like(plain), where=plain > 0)
            changed[even.edges] *= np.minimum(ratio, 1.0)
    return changed


def _without_host_cause(name: str) -> Change:
    """Return the change that removes the host time of one cause."""

    def change(window: WindowResult, work: F64) -> F64:
        replay = window.replay
        assert replay is not None
        graph, host = replay.graph, replay.segments.host
        named = np.array([profile.length[name] for profile in window.profiles])
        kept = 1.0 - np.divide(named, host, out=np.zeros_like(host), where=host > 0).clip(0.0, 1.0)
        host_work = np.flatnonzero(graph.label == Work.HOST)
        changed: F64 = work.copy()
        changed[host_work] *= kept[graph.owner[host_work], graph.segment[host_work]]
        return changed

    return change


def _without(label: Work) -> Change:
    def change(window: WindowResult, work: F64) -> F64:
        assert window.replay is not None
        return np.where(window.replay.graph.label == label, 0.0, work)

    return change


def _without_kernels(group: str) -> Change:
    return lambda window, work: without_group(window, work, group)


_CHANGES: dict[str, Change] = {
    "load_faster": _without_host_cause(input_stall.CAUSE.name),
    "load_cheaper": _without_host_cause(input_stall.CAUSE.name),
    "keep_memory": _without_host_cause(allocator.CAUSE.name),
    "pin_memory": without_pageable,
    "compile": lambda window, work: _without(Work.HOST)(window, without_group(window, work, MEMORY_BOUND)),
    "cuda_graphs": _without(Work.HOST),
    "fused_optimizer": _without_kernels(OPTIMIZER),
    "tensor_cores": _without_kernels(PLAIN),
    "larger_batch": _without_kernels(SHARDING),
    "pad_products": pad_products,
    "fuse_attention": fused,
    "fewer_ctas": undisturbed,
    "merge_calls": merged,
    "overlap_tensor_parallel": without_transfers,
    "even_context": evened,
    "overlap_experts": without_exchanges,
    "hide_transfers": _without(Work.TRANSFER),
}
"""Code of an action -> the largest change it can make. The gain of each later action is limited to its gain alone."""
