"""Cause: the step compiles (torch.compile, Triton autotuning)."""

from __future__ import annotations

import re

from rankscope.causes.base import Cause, HostExample, HostTime, Spans

__all__ = ["CAUSE"]

EVENTS = re.compile(r"compile_id=|_compile\b|entire_frame_compile|CachingAutotuner|async_compile|TritonBundler")


def _host_time(host: HostTime) -> Spans:
    return host.events(EVENTS)


CAUSE = Cause(
    name="recompile",
    phrase="it compiles during training",
    noun="compiling",
    advice=(
        "Keep shapes fixed (padding, bucketing) or mark them with torch._dynamo.mark_dynamic.",
        "TORCH_LOGS=recompiles says why it compiles.",
    ),
    check="no compilation after the first 50 steps",
    first_try="shapes that change; `TORCH_LOGS=recompiles`",
    needs=("cpu_op",),
    planted_by="demo: recompile",
    host_time=_host_time,
    examples=(
        HostExample((("cpu_op", "aten::mm", 0, 50), ("cpu_op", "entire_frame_compile", 55, 40)), claims_ms=40),
        HostExample((("cpu_op", "Torch-Compiled Region: 0/0", 0, 50), ("cpu_op", "aten::mm", 55, 40)), claims_ms=0),
    ),
)
