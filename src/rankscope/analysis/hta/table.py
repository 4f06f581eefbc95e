"""HTA's analyses that the report has. To add one: a function beside the others, a line in :data:`BREAKDOWNS`, and its
meaning in ``report/common/hta.py``.

HTA computes them row by row in pandas (the type of a kernel is determined by a regular expression for each event, again
in each analysis), which took longer than the rest of the report; to import HTA alone takes as long as the report of two
ranks. The definitions are its own, including its classification of kernels by name, and
``tests/unit/analysis/test_hta_parity.py`` compares the results. Intended differences are listed in docs/hta.md. Units
are HTA's: microseconds and per cent.
"""

from __future__ import annotations

from collections.abc import Callable

from rankscope.analysis.hta.annotations import user_annotation_breakdown
from rankscope.analysis.hta.breakdowns import (
    comm_comp_overlap,
    idle_time_breakdown,
    kernel_breakdown,
    kernel_type_breakdown,
    memory_bandwidth,
    temporal_breakdown,
)
from rankscope.analysis.hta.events import HtaRank
from rankscope.analysis.hta.launches import launch_statistics, queue_length
from rankscope.analysis.hta.numbers import Record
from rankscope.analysis.hta.sequences import frequent_kernel_sequences, operator_kernels

__all__ = ["BREAKDOWNS"]

BREAKDOWNS: dict[str, Callable[[HtaRank], Record | list[Record]]] = {
    "temporal_breakdown": temporal_breakdown,
    "comm_comp_overlap": comm_comp_overlap,
    "idle_time_breakdown": idle_time_breakdown,
    "kernel_type_breakdown": kernel_type_breakdown,
    "kernel_breakdown": kernel_breakdown,
    "launch_statistics": launch_statistics,
    "queue_length": queue_length,
    "memory_bandwidth": memory_bandwidth,
    "operator_kernels": operator_kernels,
    "frequent_kernel_sequences": frequent_kernel_sequences,
    "user_annotation_breakdown": user_annotation_breakdown,
}
"""Name in the report -> function that computes the numbers of one rank."""
