"""Properties of the program in the traces: features in use, what was recorded of it, and where its Python time is
spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rankscope.analysis.operators.python_lines import readable
from rankscope.analysis.operators.work import operator_work
from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.self_time import self_time
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.rows import RankIdle, RankSummary
from rankscope.trace.columns import Category

__all__ = ["OPTIMIZER_STEP", "REDUCER", "compute_ms", "has_shapes", "host_lines", "host_ms", "most_called", "uses"]

_SIGNS = {
    "ddp": ("DistributedDataParallel.forward",),
    "fsdp1": ("FullyShardedDataParallel.",),
    "fsdp2": ("FSDP::",),
    "compile": ("triton_", "## Call CompiledFxGraph", "Torch-Compiled Region", "CompiledFunction"),
    "cuda_graphs": ("cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"),
    "fused_optimizer": ("aten::_fused_adam", "aten::_fused_sgd", "aten::_fused_adagrad"),
    "foreach_optimizer": ("aten::_foreach_",),
    "optimizer": ("Optimizer.step#",),
    "loads_in_training": ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.",),
    "loads_in_workers": ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.",),
}
"""Prefixes of names."""
OPTIMIZER_STEP = ("Optimizer.step#",)
REDUCER = ("torch::distributed::reducer::mul_out", "torch.distributed.ddp.reducer::")
"""What DDP does with gradients and buckets for each reduction."""
MOST_LINES = 3


def uses(views: Iterable[RankView]) -> list[str]:
    """Return the features that one rank of each window shows to be in use."""
    found: set[str] = set()
    seen: set[tuple[int, int]] = set()
    for view in views:
        place = (view.trace.attempt, view.trace.window)
        if place in seen:
            continue
        seen.add(place)
        for name in view.trace.strings:
            found |= {use for use, signs in _SIGNS.items() if use not in found and name.startswith(signs)}
    return sorted(found)


def host_ms(view: RankView, names: tuple[str, ...]) -> float:
    """Return the host time in events whose names begin so, per recorded step, ms; nested ones count once."""
    events = view.trace.events
    chosen = view.chain & (events.stream < 0) & view.named(lambda name: name.startswith(names))
    chosen &= events.step >= 0
    return intervals.measure(view.spans(chosen)) / view.steps / 1e6 if view.steps else 0.0


def has_shapes(view: RankView) -> bool:
    """Return whether the shapes of operators' inputs were recorded."""
    events = view.trace.events
    codes = np.unique(events.shape[(events.category == Category.CPU_OP) & (events.shape >= 0)])
    return any(any(digit in view.trace.strings[code] for digit in "123456789") for code in codes.tolist())


def compute_ms(ranks: Sequence[RankSummary]) -> dict[int, float]:
    """Return the compute of each rank per step, over its own steps."""
    lengths = {r.rank: (r.compute_pct, r.step_ms.get("median")) for r in ranks}
    return {rank: pct * ms / 100.0 for rank, (pct, ms) in lengths.items() if pct is not None and ms is not None}


def most_called(views: Sequence[RankView]) -> dict[str, Any]:
    """Return ``often`` and ``often_calls`` of the evidence, by the first rank with steps."""
    view = next((v for v in views if v.steps), None)
    if view is None:
        return {}
    names, counts = np.unique(view.trace.events.name[operator_work(view).event], return_counts=True)
    if not len(names):
        return {}
    most = int(counts.argmax())
    return {"often": view.trace.strings[names[most]], "often_calls": float(counts[most]) / view.steps}


def host_lines(windows: Sequence[WindowResult], idle: Sequence[RankIdle]) -> dict[str, float]:
    """Return the functions with most self time on the rank with most host idle time, ms per step."""
    waiting = {row.rank: row.host_ms for row in idle}
    views = [v for w in windows for v in w.views if v.steps and len(v.trace.python)]
    view = max(views, key=lambda v: waiting.get(v.rank, 0.0), default=None)
    if view is None:
        return {}
    python, steps = view.trace.python, view.trace.steps
    inside = (python.start >= steps.start[0]) & (python.start < steps.end[-1])
    own = self_time(python.tid, python.start, python.duration)
    names, place = np.unique(python.name[inside], return_inverse=True)
    total = np.bincount(place, own[inside], len(names))
    order = np.argsort(-total)
    strings = view.trace.strings
    named = [i for i in order.tolist() if ".py(" in strings[names[i]]][:MOST_LINES]
    return {readable(strings[names[i]]): float(total[i]) / 1e6 / view.steps for i in named}
