"""What a driver calls the accelerator that this process uses."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["device_identity"]


def device_identity(index: int) -> str | None:
    """UUID of a CUDA device, PCI address of a ROCm device; None where PyTorch does not tell.

    ROCm's UUID as PyTorch prints it is not the one that AMD SMI knows; both agree on the address.
    """
    known: Any = torch.cuda.get_device_properties(index)
    if torch.version.hip is None:
        uuid = getattr(known, "uuid", None)  # torch 2.5 and later
        return None if uuid is None else f"GPU-{uuid}"
    place = [getattr(known, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if None in place:
        return None
    domain, bus, device = place
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"
