"""Device events of one rank as HTA takes them: by its types of kernels, and those whose launch is known.

Source: HolisticTraceAnalysis 0.5.0, ``hta.utils.utils`` and ``hta.common.trace_symbol_table``.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.trace.columns import Category, RankTrace

__all__ = ["HtaRank", "type_of"]

_COMMUNICATION = re.compile(r"nccl.*Kernel")
_MEMORY = re.compile(r"Memcpy|Memset|dma")
_NO_COMPUTATION = re.compile(r".*Memcpy|Memset|.*Sync")
_LAUNCHES = frozenset(
    {
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "cuLaunchKernelEx",  # since 0.6, as the successor is named
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "runFunction - job_prep_and_submit_for_execution",
        "hipLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipMemsetAsync",
        "hipMemcpyAsync",
        "hipMemcpyWithStream",
    }
)


def type_of(name: str) -> str:
    """Return HTA's type of a kernel of this name."""
    if _COMMUNICATION.match(name):
        return "COMMUNICATION"
    if _MEMORY.match(name):
        return "MEMORY"
    return "OTHER" if _NO_COMPUTATION.match(name) else "COMPUTATION"


class HtaRank:
    """A trace, with what several analyses need of it; found once."""

    def __init__(self, trace: RankTrace) -> None:
        self.trace = trace

    @cached_property
    def types(self) -> dict[str, NDArray[np.int64]]:
        """HTA's type -> rows of the device's events. Like HTA, this treats everything on a stream as a kernel."""
        events = self.trace.events
        rows = np.flatnonzero((events.stream != -1) & (events.category != Category.CUDA_SYNC))
        names = events.name[rows]
        types = {code: type_of(self.trace.strings[code]) for code in np.unique(names).tolist()}
        return {
            kind: rows[np.isin(names, [code for code, its in types.items() if its == kind])]
            for kind in ("COMPUTATION", "COMMUNICATION", "MEMORY", "OTHER")
        }

    @cached_property
    def launched(self) -> NDArray[np.int64]:
        """Rows of the device's events whose launch is in the trace, without those of CUDA graphs."""
        events = self.trace.events
        codes = [code for code, text in enumerate(self.trace.strings) if text in _LAUNCHES]
        rows = np.concatenate(list(self.types.values()))
        rows = np.sort(rows[events.launch[rows] >= 0])
        return rows[np.isin(events.name[events.launch[rows]], codes)]

    @cached_property
    def spans(self) -> dict[str, intervals.Spans]:
        """HTA's type -> union of the times of its events."""
        events = self.trace.events
        return {
            kind: intervals.union(events.start[rows], events.start[rows] + events.duration[rows])
            for kind, rows in self.types.items()
        }
