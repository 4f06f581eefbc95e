"""HTA's sequences of kernels over our columns: what an operator launches, in order, and how often.

Kernels are named without return type and parameters, as by HTA's ``shorten_name``, because a sequence of full names is
not readable; sequences that are equal then are one.

Source: HolisticTraceAnalysis 0.5.0, ``hta.analyzers.cuda_kernel_analysis``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.hta.events import HtaRank
from rankscope.analysis.hta.numbers import Record
from rankscope.trace.columns import Category, RankTrace
from rankscope.trace.names import function

__all__ = ["MOST_SEQUENCES", "frequent_kernel_sequences", "operator_kernels"]

MOST_SEQUENCES = 5
"""HTA's ``top_k``."""
_SHORTEST = 3
"""HTA's ``min_pattern_len``."""
_MOST_KERNELS = 6
"""Kernels of a sequence that are named: a compiled backward pass can be one sequence of hundreds."""

I64 = NDArray[np.int64]
_short = lru_cache(1 << 14)(function)


def operator_kernels(rank: HtaRank) -> list[Record]:
    """Return the most frequent pairs of an ATen operator and the kernels that it launches itself.

    The first delay is from the operator's start to its first launch, the second from there to that kernel's start.
    """
    trace, rows = rank.trace, rank.launched
    events = trace.events
    launches = [code for code, text in enumerate(trace.strings) if "LaunchKernel" in text or text.startswith("runFunc")]
    rows = rows[np.isin(events.name[events.launch[rows]], launches)]
    rows = rows[np.argsort(events.start[events.launch[rows]], kind="stable")]
    aten = np.array([text.startswith("aten::") for text in trace.strings], bool)
    owner = _innermost(trace, np.flatnonzero((events.category == Category.CPU_OP) & aten[events.name]), rows)
    operators, bounds, rows = _by_owner(owner, rows)
    first = rows[bounds[:-1]]
    launch = events.start[events.launch[first]]
    before_launch, before_kernel = launch - events.start[operators], events.start[first] - launch
    return [
        {
            "aten_op_name": name,
            "occurrence_count": len(own),
            "avg_aten_op_launch_delay": round(float(before_launch[own].mean()) / 1000, 3),
            "avg_runtime_delay": round(float(before_kernel[own].mean()) / 1000, 3),
            "kernel_sequence": sequence,
        }
        for name, sequence, own in _most_frequent(trace, operators, bounds, rows)
    ]


def frequent_kernel_sequences(rank: HtaRank) -> list[Record]:
    """Return the most frequent sequences of at least three kernels that an outermost operator launches."""
    trace, rows = rank.trace, rank.launched
    events = trace.events
    owner = _outermost(trace, np.flatnonzero(events.category == Category.CPU_OP), rows)
    operators, bounds, rows = _by_owner(owner, rows)
    ran = np.add.reduceat(events.duration[rows], bounds[:-1]) if len(rows) else events.duration[rows]
    return [
        {
            "operator": name,
            "count": len(own),
            "GPU kernel duration (us)": int(ran[own].sum()) / 1000,
            "CPU op duration (us)": int(events.duration[operators[own]].sum()) / 1000,
            "kernel_sequence": sequence,
        }
        for name, sequence, own in _most_frequent(trace, operators, bounds, rows, _SHORTEST)
    ]


def _innermost(trace: RankTrace, operators: I64, kernels: I64) -> I64:
    """Return for each kernel the innermost of some operators around its launch, on the launch's thread; -1 for none."""
    starts, ends = trace.events.start, trace.events.end
    found = np.full(len(kernels), -1, np.int64)
    for own, mine, launch in _threads(trace, operators, kernels):
        start, end = starts[own], np.sort(ends[own])
        # Operators nest: the innermost one at a time is the last that began at the depth of that time.
        level = np.arange(1, len(own) + 1) - np.searchsorted(end, start, side="right")
        begun = np.searchsorted(start, starts[launch], side="right")
        depth = begun - np.searchsorted(end, ends[launch], side="left")
        for number in np.unique(depth[depth > 0]).tolist():
            at_depth = np.flatnonzero(level == number)
            wanted = np.flatnonzero(depth == number)
            place = np.searchsorted(at_depth, begun[wanted] - 1, side="right") - 1
            inside = own[at_depth[place.clip(0)]] if len(at_depth) else np.full(len(wanted), -1)
            around = (place >= 0) & (ends[inside] >= ends[launch[wanted]])
            found[mine[wanted]] = np.where(around, inside, -1)
    return found


def _outermost(trace: RankTrace, operators: I64, kernels: I64) -> I64:
    """As :func:`_innermost`, the outermost one."""
    starts, ends = trace.events.start, trace.events.end
    found = np.full(len(kernels), -1, np.int64)
    for own, mine, launch in _threads(trace, operators, kernels):
        before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(ends[own])[:-1]))
        outer = own[starts[own] >= before]
        place = np.searchsorted(starts[outer], starts[launch], side="right") - 1
        inside = outer[place.clip(0)]
        found[mine] = np.where((place >= 0) & (ends[inside] >= ends[launch]), inside, -1)
    return found


def _threads(trace: RankTrace, operators: I64, kernels: I64) -> Iterator[tuple[I64, I64, I64]]:
    """Yield for each thread its operators, its places in ``kernels``, and the launches of those."""
    events = trace.events
    launches = events.launch[kernels].astype(np.int64)
    of_launch = events.pid[launches] * 1_000_003 + events.tid[launches]
    of_operator = events.pid[operators] * 1_000_003 + events.tid[operators]
    for number in np.unique(of_launch).tolist():
        own, mine = operators[of_operator == number], np.flatnonzero(of_launch == number)
        if len(own):
            yield own, mine, launches[mine]


def _by_owner(owner: I64, kernels: I64) -> tuple[I64, I64, I64]:
    """Return the operators that launched some kernels, in order of their rows, and the kernels grouped by them.

    Those of the n-th operator are from ``bounds[n]`` to ``bounds[n + 1]``, in their order.
    """
    order = np.argsort(owner, kind="stable")
    order = order[owner[order] >= 0]
    begins = np.flatnonzero(np.diff(owner[order], prepend=-1))
    return owner[order[begins]], np.append(begins, len(order)), kernels[order]


def _most_frequent(
    trace: RankTrace, operators: I64, bounds: I64, kernels: I64, shortest: int = 1
) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Yield the most frequent pairs of an operator's name and its sequence of kernels, with the operators' places."""
    known: dict[str, int] = {}
    codes = np.full(len(trace.strings), -1, np.int64)
    for code in np.unique(trace.events.name[kernels]).tolist():
        codes[code] = known.setdefault(_short(trace.strings[code]), len(known))
    by_name, names = codes[trace.events.name[kernels]].tolist(), list(known)
    edges, named = bounds.tolist(), trace.events.name[operators].tolist()
    places: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
    for place, (name, begin, end) in enumerate(zip(named, edges, edges[1:], strict=False)):
        if end - begin >= shortest:
            places[name, tuple(by_name[begin:end])].append(place)
    for key in sorted(places, key=lambda key: -len(places[key]))[:MOST_SEQUENCES]:
        more = len(key[1]) - _MOST_KERNELS
        parts = [names[code] for code in key[1][:_MOST_KERNELS]] + ([f"{more} more"] if more > 0 else [])
        yield trace.strings[key[0]], " -> ".join(parts), places[key]
