"""Cause: device memory is allocated and freed in the step, which synchronises the device."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankscope.causes.base import Cause, Facts, HostExample, HostTime, Spans

__all__ = ["CAUSE"]

CALLS = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|MemGetInfo|FreeHost|MallocHost)|^cuMem(Create|Map|Unmap|Release)"
)


def _host_time(host: HostTime) -> Spans:
    return host.calls(CALLS)


_ADVICE = (
    "Remove torch.cuda.empty_cache() from the step.",
    "If memory is short, try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True instead.",
)


def _advise(facts: Facts) -> Sequence[str]:
    return [f"Remove torch.cuda.empty_cache() from {facts.line}.", _ADVICE[1]] if facts.line else _ADVICE


CAUSE = Cause(
    name="allocator",
    phrase="it allocates and frees device memory in the step",
    noun="allocating and freeing memory",
    advice=_ADVICE,
    advise=_advise,
    check="no cudaMalloc and no cudaFree after the first steps",
    first_try="`torch.cuda.empty_cache()` in the step",
    needs=("cuda_runtime",),
    planted_by="benchmarks: allocator",
    host_time=_host_time,
    examples=(
        HostExample((("cuda_runtime", "cudaMalloc", 10, 5), ("cuda_runtime", "cudaFree", 20, 3)), claims_ms=8),
        HostExample((("cuda_runtime", "cudaMemcpyAsync", 10, 5), ("cpu_op", "aten::empty", 20, 3)), claims_ms=0),
    ),
)
