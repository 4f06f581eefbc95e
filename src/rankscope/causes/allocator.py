"""Memory of the device is taken and given back in the step, which synchronises it."""

from __future__ import annotations

import re

from rankscope.causes.base import Cause, HostExample, HostTime, Spans

__all__ = ["CAUSE"]

CALLS = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|MemGetInfo|FreeHost|MallocHost)|^cuMem(Create|Map|Unmap|Release)"
)


def _host_time(host: HostTime) -> Spans:
    return host.calls(CALLS)


CAUSE = Cause(
    name="allocator",
    phrase="it allocates and frees device memory in the step",
    noun="allocating and freeing memory",
    advice=(
        "Remove torch.cuda.empty_cache() from the step.",
        "If memory is short, try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True instead.",
    ),
    first_try="`torch.cuda.empty_cache()` in the step",
    needs=("cuda_runtime",),
    planted_by="benchmarks: allocator",
    host_time=_host_time,
    examples=(
        HostExample((("cuda_runtime", "cudaMalloc", 10, 5), ("cuda_runtime", "cudaFree", 20, 3)), claims_ms=8),
        HostExample((("cuda_runtime", "cudaMemcpyAsync", 10, 5), ("cpu_op", "aten::empty", 20, 3)), claims_ms=0),
    ),
)
