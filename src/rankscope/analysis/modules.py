"""Exposed communication by what it belongs to: the FSDP module an annotation names, or the place of a DDP bucket.

FSDP2 wraps each launch in ``FSDP::all_gather (layers.3)`` or ``FSDP::post_backward_reduce (layers.3)``. DDP names
nothing; its buckets are reduced in the same order each step, so the n-th all-reduce of a step is bucket n.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.segments import launch_times
from rankscope.analysis.summary import exposed_per_call
from rankscope.analysis.view import RankView, name_mask
from rankscope.analysis.window import WindowResult
from rankscope.trace.columns import Category

__all__ = ["exposed_by_module"]

I64 = NDArray[np.int64]

_FSDP = re.compile(r"^FSDP::(all_gather|post_backward_reduce|post_backward_all_reduce)(?: \((?P<module>.*)\))?$")
_WORDS = {"all_gather": "all-gather", "post_backward_reduce": "reduce", "post_backward_all_reduce": "all-reduce"}


def exposed_by_module(windows: Sequence[WindowResult]) -> dict[str, float]:
    """Label -> ms per step that compute does not hide (waiting included), mean over the ranks, largest first."""
    total: dict[str, float] = defaultdict(float)
    steps = sum(max(w.step_count, 1) for w in windows)
    for window in windows:
        if not len(window.matched):
            continue
        exposed = exposed_per_call(window)
        named = np.full(len(exposed), "", dtype=object)
        for column, view in enumerate(window.views):
            mine = np.flatnonzero((window.matched.rows[:, column] >= 0) & (named == ""))
            if len(mine):
                named[mine] = _labels(view, window.matched.rows[mine, column].astype(np.int64))
        for label, ns in zip(named.tolist(), exposed.tolist(), strict=True):
            if label:
                total[label] += ns / 1e6 / steps
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _labels(view: RankView, rows: I64) -> NDArray[np.object_]:
    """Label of each call, empty where nothing names it."""
    trace, events = view.trace, view.trace.events
    out = np.full(len(rows), "", dtype=object)
    annotation = events.category == Category.USER_ANNOTATION
    marks = np.flatnonzero(annotation & name_mask(trace, lambda n: _FSDP.match(n) is not None))
    if len(marks):
        times = launch_times(view, rows)
        at = np.searchsorted(events.start[marks], times, side="right") - 1
        inside = (at >= 0) & (times < events.end[marks[at.clip(0)]])
        for place in np.flatnonzero(inside).tolist():
            found = _FSDP.match(trace.strings[events.name[marks[at[place]]]])
            if found:
                out[place] = f"{_WORDS[found[1]]} of {found['module'] or 'the root'}"
        return out
    if not (annotation & name_mask(trace, lambda n: n == "DistributedDataParallel.forward")).any():
        return out
    step = events.step[trace.collectives.event[rows]]
    reduces = np.array(["reduce" in trace.collectives.kind[r] for r in rows.tolist()])
    for number in np.unique(step[reduces & (step >= 0)]).tolist():
        chosen = np.flatnonzero(reduces & (step == number))
        chosen = chosen[np.argsort(launch_times(view, rows[chosen]), kind="stable")]
        for bucket, place in enumerate(chosen.tolist()):
            out[place] = f"DDP bucket {bucket + 1}"
    return out
