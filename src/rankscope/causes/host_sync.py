"""Cause: the code waits for the device (``.item()``, ``.cpu()``, ``torch.cuda.synchronize()``).

It is recognised by the synchronising calls of the runtime. ``aten::item`` is not counted, because an optimizer reads
its step counters from CPU tensors with it hundreds of times without waiting. Ranks are compared by the number of calls:
the duration of a synchronisation shows how far the device lags behind the host, and the number depends on the code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankscope.causes.base import Cause, Facts, HostExample, HostTime, Spans

__all__ = ["CALLS", "CAUSE"]

CALLS = re.compile(r"Synchronize$")


def _host_time(host: HostTime) -> Spans:
    return host.calls(CALLS)


_ADVICE = (
    "Remove .item(), .cpu(), print(tensor) and torch.cuda.synchronize() from the step; log every N steps instead.",
    "torch.cuda.set_sync_debug_mode('warn') names the lines.",
)


def _advise(facts: Facts) -> Sequence[str]:
    if not facts.line:
        return _ADVICE
    return [f"Remove .item(), .cpu() and torch.cuda.synchronize() from {facts.line}; log every N steps instead."]


CAUSE = Cause(
    name="host_sync",
    phrase="its code waits for the device again and again",
    noun="waiting for the device",
    advice=_ADVICE,
    advise=_advise,
    check="no synchronising call in a step",
    first_try="`.item()`, `.cpu()`, `print(tensor)` in the step",
    needs=("cuda_runtime",),
    planted_by="benchmarks: host_sync",
    host_time=_host_time,
    by_count=True,
    examples=(
        HostExample((("cuda_runtime", "cudaStreamSynchronize", 10, 5), ("cpu_op", "aten::mm", 20, 5)), claims_ms=5),
        HostExample((("cpu_op", "aten::item", 10, 5), ("cuda_runtime", "cudaLaunchKernel", 20, 5)), claims_ms=0),
    ),
)
