"""Where the accelerators of this node sit: NUMA node and nearest RDMA adapters from sysfs, NVLink from their driver."""

from __future__ import annotations

from pathlib import Path

from rankscope.node.health.gpus import GpuReader
from rankscope.records.rank import DevicePlace

__all__ = ["place_of", "places_of"]

SYSFS = Path("/sys")


def places_of(gpus: GpuReader, sysfs: Path = SYSFS) -> dict[str, DevicePlace]:
    """Return device -> its place, for all devices whose PCI address is known."""
    joined = gpus.joined()
    found = {device: place_of(address, sysfs) for device, address in gpus.addresses().items()}
    for device, place in found.items():
        place.nvlink = joined.get(device, [])
    return found


def place_of(address: str, sysfs: Path = SYSFS) -> DevicePlace:
    """Return the place of the device at a PCI address (``0000:18:00.0``).

    Of the RDMA adapters those count that share the longest path of PCI bridges with it, and at least the host bridge:
    between two of them no NUMA node is crossed.
    """
    device = sysfs / "bus" / "pci" / "devices" / address
    try:
        node = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        node = -1
    return DevicePlace(numa=node if node >= 0 else None, nics=_nearest(device, sysfs / "class" / "infiniband"))


def _nearest(device: Path, adapters: Path) -> list[str]:
    try:
        own = device.resolve(strict=True).parts
        others = {entry.name: (entry / "device").resolve(strict=True).parts for entry in adapters.iterdir()}
    except OSError:
        return []  # no such device, or no adapters
    bridge = next((depth for depth, part in enumerate(own, 1) if part.startswith("pci")), len(own))
    shared = {name: _common(own, path) for name, path in others.items()}
    most = max(shared.values(), default=0)
    return sorted(name for name, depth in shared.items() if depth == most >= bridge)


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return the number of folders that both paths begin with."""
    return next(
        (depth for depth, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
