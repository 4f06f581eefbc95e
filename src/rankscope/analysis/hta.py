"""HolisticTraceAnalysis over our columns. The only importer of ``hta``, inside functions only: importing is slow.

Its parser is bypassed: it loses ranks, the last step, and minutes. ``Trace`` takes our frames, as its own parser would
have made them (same columns, same meaning, with HTA_DISABLE_NS_ROUNDING=1), and its analyses run as they are. Only
those whose numbers were found right are called; each call stands alone, so that one that fails costs nothing else.

Source: HolisticTraceAnalysis 0.5.0, ``hta.common.trace_parser`` and ``hta.trace_analysis``.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rankscope.model import ReportError
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

MOST_KERNELS = 8
"""Kernels per type in HTA's kernel breakdown, which goes wrong above 10."""


def run_hta(traces: Sequence[RankTrace]) -> tuple[dict[str, Any], list[ReportError]]:
    """Run HTA's analyses on one window.

    Returns:
        Analysis name -> rank as text -> HTA's own numbers (its units: microseconds and per cent; NaN becomes None),
        and what failed. Ranks without device work are left out: HTA raises on them.
    """
    usable = [t for t in traces if t.rank is not None and bool((t.events.category == Category.KERNEL).any())]
    if not usable:
        return {}, []
    results: dict[str, Any] = {}
    failed: list[ReportError] = []
    with _quiet():
        try:
            analysis = trace_analysis(usable)
        except Exception as error:
            return {}, [ReportError(where="hta", message=f"{type(error).__name__}: {error}")]
        ranks = [int(t.rank) for t in usable if t.rank is not None]
        for name, call in _analyses(analysis, ranks).items():
            _guarded(name, call, results, failed)
    return results, failed


def _guarded(name: str, call: Callable[[], dict[str, Any]], results: dict[str, Any], failed: list[ReportError]) -> None:
    try:
        results[name] = call()
    except Exception as error:
        failed.append(ReportError(where=f"hta.{name}", message=f"{type(error).__name__}: {error}"))


def trace_analysis(traces: Sequence[RankTrace]) -> Any:
    """HTA's ``TraceAnalysis`` over our columns. It has no public constructor that takes a ``Trace``."""
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # the rounding gave an overlap of 244 %
    from hta.common.trace import Trace
    from hta.common.trace_symbol_table import TraceSymbolTable
    from hta.trace_analysis import TraceAnalysis

    symbols = TraceSymbolTable()
    trace = Trace(trace_files={}, trace_dir="/")
    trace.traces = frames(traces, symbols)
    trace.symbol_table = symbols
    trace.min_ts = 0
    trace.meta_data = {rank: {} for rank in trace.traces}
    trace.is_parsed = True
    analysis = TraceAnalysis.__new__(TraceAnalysis)
    analysis.t = trace
    return analysis


def frames(traces: Sequence[RankTrace], symbols: Any) -> dict[int, Any]:
    """One data frame per rank, times in microseconds from the earliest event of all ranks.

    Args:
        traces: ranks of one window.
        symbols: HTA's symbol table, filled here.
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
    frame = frame[events.category != Category.CUDA_SYNC]  # HTA takes them for kernels that fill the stream
    frame = frame.sort_values("index").set_index("index", drop=False)
    frame.index.name = None
    return transform_correlation_to_index(frame, symbols)


def _analyses(analysis: Any, ranks: list[int]) -> dict[str, Callable[[], dict[str, Any]]]:
    """Name in the report -> call."""
    return {
        "temporal_breakdown": lambda: _by_rank(analysis.get_temporal_breakdown(visualize=False)),
        "comm_comp_overlap": lambda: _by_rank(analysis.get_comm_comp_overlap(visualize=False)),
        "idle_time_breakdown": lambda: _by_rank(
            analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)[0], many=True
        ),
        "kernel_breakdown": lambda: _by_rank(
            analysis.get_gpu_kernel_breakdown(num_kernels=MOST_KERNELS, visualize=False)[1], many=True
        ),
        "queue_length": lambda: _indexed(analysis.get_queue_length_summary(ranks=ranks)),
        "memory_bandwidth": lambda: _indexed(analysis.get_memory_bw_summary(ranks=ranks)),
    }


def _by_rank(frame: Any, *, many: bool = False) -> dict[str, Any]:
    """Rows of a frame with a ``rank`` column; with ``many`` each rank has a list of them."""
    found: dict[str, Any] = {}
    for row in frame.to_dict("records"):
        rank = str(int(row.pop("rank")))
        plain = {str(k): _plain(v) for k, v in row.items()}
        if many:
            found.setdefault(rank, []).append(plain)
        else:
            found[rank] = plain
    return found


def _indexed(frame: Any) -> dict[str, Any]:
    """Rows of a frame indexed by (rank, what): rank -> what -> numbers. None and empty frames give nothing."""
    found: dict[str, Any] = {}
    if frame is None or not len(frame):
        return found
    for (rank, what), row in zip(frame.index, frame.to_dict("records"), strict=True):
        found.setdefault(str(int(rank)), {})[str(what)] = {str(k): _plain(v) for k, v in row.items()}
    return found


def _plain(value: Any) -> Any:
    """A number JSON can hold: NaN and infinities are no measurement."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return None if value is None else str(value)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """HTA warns and prints about matters of its own parser and pandas' future; none of it concerns the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
