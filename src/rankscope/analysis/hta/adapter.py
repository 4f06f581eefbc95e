"""HolisticTraceAnalysis over our columns. The only importer of ``hta``, inside functions only: importing is slow.

Its parser is bypassed, because it loses ranks and the last step, and takes minutes. ``Trace`` gets our frames, as its
own parser would have made them (same columns, same meaning, with HTA_DISABLE_NS_ROUNDING=1), and its analyses run
unchanged. The report's own HTA numbers come from ``table``, whose functions compute the same without it (docs/hta.md).

Source: HolisticTraceAnalysis 0.5.0, ``hta.common.trace_parser`` and ``hta.trace_analysis``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rankscope.analysis.hta.events import HtaRank
from rankscope.analysis.hta.table import BREAKDOWNS
from rankscope.records.report import ReportError
from rankscope.trace.columns import Category, RankTrace

__all__ = ["frames", "run_hta", "trace_analysis"]

_NAMES = {
    Category.CPU_OP: "cpu_op",
    Category.USER_ANNOTATION: "user_annotation",
    Category.CUDA_RUNTIME: "cuda_runtime",
    Category.CUDA_DRIVER: "cuda_driver",
    Category.KERNEL: "kernel",
    Category.GPU_MEMCPY: "gpu_memcpy",
    Category.GPU_MEMSET: "gpu_memset",
    Category.GPU_USER_ANNOTATION: "gpu_user_annotation",
    Category.CUDA_SYNC: "cuda_sync",
    Category.OVERHEAD: "overhead",
    Category.PYTHON_FUNCTION: "python_function",
    Category.OTHER: "other",
}


def run_hta(traces: Sequence[RankTrace]) -> tuple[dict[str, Any], list[ReportError]]:
    """Return HTA's numbers of each trace by itself; they do not relate ranks or windows.

    Returns:
        Analysis name -> rank as text -> numbers in HTA's units (microseconds and per cent; None where HTA has NaN), and
        the failures. With several windows the text is ``3, window 1``, with several attempts ``3, window 0.1`` (attempt
        and window). Ranks without kernels are left out, because HTA raises an error on them.
    """
    results: dict[str, Any] = {}
    failed: list[ReportError] = []
    usable = [t for t in traces if t.rank is not None and bool((t.events.category == Category.KERNEL).any())]
    usable.sort(key=lambda t: (t.attempt, t.window, t.rank or 0))
    windows = len({(t.attempt, t.window) for t in usable}) > 1
    attempts = len({t.attempt for t in usable}) > 1
    keys = [
        f"{t.rank}" + (f", window {f'{t.attempt}.' if attempts else ''}{t.window}" if windows else "") for t in usable
    ]
    ranks = [HtaRank(t) for t in usable]
    for name, numbers in BREAKDOWNS.items() if usable else ():
        with _guarded(name, failed):
            results[name] = {key: _plain(numbers(rank)) for key, rank in zip(keys, ranks, strict=True)}
    return results, failed


@contextmanager
def _guarded(name: str, failed: list[ReportError]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        failed.append(ReportError(where=f"hta.{name}", message=f"{type(error).__name__}: {error}"))


def trace_analysis(traces: Sequence[RankTrace]) -> Any:
    """Return HTA's ``TraceAnalysis`` over our columns. It has no public constructor that takes a ``Trace``."""
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # rounding led to an overlap of 244 %
    from hta.common.trace import Trace
    from hta.common.trace_symbol_table import TraceSymbolTable
    from hta.trace_analysis import TraceAnalysis

    symbols = TraceSymbolTable()
    trace = Trace(trace_files={t.rank: t.source for t in traces if t.rank is not None}, trace_dir="/")
    trace.traces = frames(traces, symbols)
    trace.symbol_table = symbols
    trace.min_ts = 0
    trace.meta_data = {rank: {} for rank in trace.traces}
    trace.is_parsed = True
    analysis = TraceAnalysis.__new__(TraceAnalysis)
    analysis.t = trace
    return analysis


def frames(traces: Sequence[RankTrace], symbols: Any) -> dict[int, Any]:
    """Return one data frame per rank, times in microseconds from the earliest event of all ranks.

    Args:
        traces: ranks of one window.
        symbols: HTA's symbol table, which is filled.
    """
    origin = min(int(t.events.start.min()) for t in traces)
    for trace in traces:
        used = {trace.strings[i] for i in np.unique(trace.events.name).tolist()}
        symbols.add_symbols(used | set(_NAMES.values()))
    codes = symbols.get_sym_id_map()
    return {int(t.rank): _frame(t, codes, symbols, origin) for t in traces if t.rank is not None}


def _frame(trace: RankTrace, codes: dict[str, int], symbols: Any, origin: int) -> Any:
    import pandas as pd
    from hta.common.trace import transform_correlation_to_index

    events = trace.events
    category = np.array([codes[_NAMES[Category(c)]] for c in range(len(Category))], np.int64)
    named = np.zeros(int(events.name.max(initial=0)) + 1, np.int64)
    for code in np.unique(events.name).tolist():
        named[code] = codes[trace.strings[code]]
    frame = pd.DataFrame(
        {
            "index": events.position,
            "cat": category[events.category],
            "name": named[events.name],
            "pid": events.pid,
            "tid": events.tid,
            "ts": (events.start - origin) / 1000.0,
            "dur": events.duration / 1000.0,
            "stream": events.stream.astype(np.int64),
            "correlation": events.correlation,
            "bytes": events.bytes,
            "memory_bw_gbps": events.bandwidth_gb_s,
        }
    )
    frame["end"] = frame["ts"] + frame["dur"]
    number = trace.steps.number if len(trace.steps) else np.full(1, -1, np.int64)
    frame["iteration"] = np.where(events.step >= 0, number[events.step.clip(0)], -1)
    frame = frame[events.category != Category.CUDA_SYNC]  # HTA would take them for kernels that fill the stream
    frame = frame.sort_values("index").set_index("index", drop=False)
    frame.index.name = None
    return transform_correlation_to_index(frame, symbols)


def _plain(value: Any) -> Any:
    """Convert a value for JSON: NaN and infinities are not measurements, so they become None."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
