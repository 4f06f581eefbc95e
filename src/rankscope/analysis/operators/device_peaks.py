"""Peak performance of devices, by name: dense matrix products without sparsity, and device memory.

Sources: NVIDIA's data sheets of V100, A100, L40S, H100, H200 and B200, and AMD's of MI250X, MI300X and MI325X. Where a
sheet gives a number with sparsity, the table has half of it. For V100 it is fp16, because it has no bf16.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Peak", "peak_of"]


class Peak(NamedTuple):
    """Peak performance of one device."""

    tflops: float
    """10^12 operations per second in bf16 (fp16), with tensor cores."""
    gb_s: float
    """Bandwidth of its memory, 10^9 bytes per second."""


_BY_NAME: tuple[tuple[str, Peak], ...] = (
    ("V100", Peak(125.0, 900.0)),
    ("A100 80GB PCIE", Peak(312.0, 1935.0)),
    ("A100-SXM4-80GB", Peak(312.0, 2039.0)),
    ("A100-PCIE-40GB", Peak(312.0, 1555.0)),
    ("A100-SXM4-40GB", Peak(312.0, 1555.0)),
    ("A100", Peak(312.0, 2039.0)),
    ("L40S", Peak(362.0, 864.0)),
    ("H100 PCIE", Peak(756.0, 2000.0)),
    ("H100 NVL", Peak(835.0, 3900.0)),
    ("H100", Peak(989.0, 3350.0)),
    ("H200", Peak(989.0, 4800.0)),
    ("B200", Peak(2250.0, 8000.0)),
    ("MI250X", Peak(383.0, 3276.0)),
    ("MI300X", Peak(1307.0, 5300.0)),
    ("MI325X", Peak(1307.0, 6000.0)),
)
"""The first entry whose name occurs in the device's name is used, ignoring case."""


def peak_of(device: str | None) -> Peak | None:
    """Return the peak of a device by the name that CUDA or ROCm gives it; None if it is not in the table."""
    name = (device or "").upper()
    if "MIG" in name:  # a part of a device
        return None
    return next((peak for part, peak in _BY_NAME if part in name), None)
