"""Communication by the module it belongs to: the FSDP module in an annotation, or the position of a DDP bucket.

FSDP2 wraps each launch in ``FSDP::all_gather (layers.3)`` or ``FSDP::post_backward_reduce (layers.3)``. DDP has no such
names; its buckets are reduced in the same order in each backward, so the n-th all-reduce after a forward is bucket n.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.segments import launch_times
from rankscope.analysis.tables.collective_costs import call_costs
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.rows import ModuleRow
from rankscope.trace.columns import Category

__all__ = ["exposed_by_module", "gathered_again", "labels_of_calls", "module_rows"]

I64 = NDArray[np.int64]

ROOT = "(root)"
_FSDP = re.compile(r"^FSDP::(?:all_gather|post_backward_reduce|post_backward_all_reduce)(?: \((?P<module>.*)\))?$")
_FORWARD = "DistributedDataParallel.forward"
_BUCKET = "DDP bucket"


def module_rows(windows: Sequence[WindowResult]) -> list[ModuleRow]:
    """Return the rows, most exposed first; empty if neither FSDP2 nor DDP ran, or the steps are unknown."""
    if not any(w.step_count for w in windows):
        return []
    return [
        ModuleRow(module=module, group=name, ranks=list(ranks), collective=kind, **cost.numbers())
        for (module, ranks, name, kind, _), cost in call_costs(windows, [labels_of_calls(w) for w in windows]).items()
    ]


def exposed_by_module(windows: Sequence[WindowResult], rows: Sequence[ModuleRow]) -> dict[str, float]:
    """Return label -> ms per step that compute does not overlap (including waiting), mean over the ranks, largest
    first."""
    recorded = {v.rank for w in windows for v in w.views}
    total: dict[str, float] = defaultdict(float)
    for row in rows:
        what = "" if row.module.startswith(_BUCKET) else f"{row.collective.replace('_', '-')} of "
        total[what + row.module] += row.exposed_ms_per_step * len(recorded & set(row.ranks)) / len(recorded)
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def gathered_again(rows: Sequence[ModuleRow]) -> tuple[float, int]:
    """Return the transfer per step, ms, of each second all-gather of modules that are gathered for the forward and for
    the backward, and the size of what they gather, bytes."""
    again = [row for row in rows if row.collective == "all_gather" and round(row.calls_per_step) % 2 == 0]
    size = sum(row.megabytes_per_call or 0.0 for row in again) * 1e6
    return sum(row.transfer_ms_per_step for row in again) / 2, round(size)


def labels_of_calls(window: WindowResult) -> list[str]:
    """Return the label of each matched call, from the first rank that has one; empty if no rank has one."""
    matched = window.matched
    out = [""] * len(matched)
    named = np.zeros(len(matched), np.bool_)
    for column, view in enumerate(window.views):
        if not view.has_name(lambda name: name == _FORWARD or _FSDP.match(name) is not None):
            continue
        members = matched.of(column)
        members = members[~named[matched.call[members]]]
        if not len(members):
            continue
        calls = matched.call[members]
        for call, label in zip(
            calls.tolist(), _labels_of_calls(view, matched.row[members].astype(np.int64)), strict=True
        ):
            out[call] = label
        named[calls] = [out[c] != "" for c in calls.tolist()]
    return out


def _labels_of_calls(view: RankView, rows: I64) -> list[str]:
    trace, events = view.trace, view.trace.events
    annotation = events.category == Category.USER_ANNOTATION
    marks = np.flatnonzero(annotation & view.named(lambda n: _FSDP.match(n) is not None))
    forwards = events.start[annotation & view.named(_FORWARD.__eq__)]
    if not len(marks) and not len(forwards):
        return [""] * len(rows)
    times = launch_times(view, rows)
    if len(marks):
        at = np.searchsorted(events.start[marks], times, side="right") - 1
        inside = (at >= 0) & (times < events.end[marks[at.clip(0)]])
        names = [trace.strings[n] for n in events.name[marks[at.clip(0)]].tolist()]
        return [
            ((match["module"] or ROOT) if within and (match := _FSDP.match(name)) else "")
            for name, within in zip(names, inside.tolist(), strict=True)
        ]
    out = [""] * len(rows)
    reduces = np.array(["reduce" in trace.collectives.kind[r] for r in rows.tolist()], np.bool_)
    chosen = np.flatnonzero(reduces)[np.argsort(times[reduces], kind="stable")]
    after = np.searchsorted(forwards, times[chosen], side="right")
    begun = np.flatnonzero(np.diff(after, prepend=-1))
    bucket = np.arange(len(chosen)) - np.repeat(begun, np.diff(np.append(begun, len(chosen)))) + 1
    for place, number, forward in zip(chosen.tolist(), bucket.tolist(), after.tolist(), strict=True):
        if forward:  # calls before the first forward belong to a backward that began before the window
            out[place] = f"{_BUCKET} {number}"
    return out
