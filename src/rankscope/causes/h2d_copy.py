"""Cause: copies to the device from memory that is not pinned block their caller."""

from __future__ import annotations

from rankscope.causes.base import Cause, HostExample, HostTime, Spans

__all__ = ["CAUSE"]


def _host_time(host: HostTime) -> Spans:
    return host.copies_to_device()


CAUSE = Cause(
    name="h2d_copy",
    phrase="its copies to the device block",
    noun="copies to the device",
    advice=(
        "Use pin_memory=True in the DataLoader and .to(device, non_blocking=True).",
        "Copy less: send small types and build the rest on the device.",
    ),
    check="copies named Memcpy HtoD (Pinned)",
    first_try="pinned memory, `non_blocking=True`",
    needs=("cuda_runtime", "gpu_memcpy"),
    planted_by="benchmarks: h2d_copy",
    host_time=_host_time,
    behind=("pcie_degraded",),
    examples=(
        HostExample(
            (("cuda_runtime", "cudaMemcpyAsync", 10, 5), ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 11, 4)),
            claims_ms=5,
        ),
        HostExample(
            (("cuda_runtime", "cudaMemcpyAsync", 10, 5), ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 11, 4)),
            claims_ms=0,
        ),
    ),
)
