"""Peak bandwidth of the link between two accelerators of one host, by the vendor's data sheet.

Only devices in the table have a value: the device's full name must match, and all ranks of a group must be on one host
with the same device. Cards with an optional bridge (A100 PCIe, H100 PCIe and NVL) are left out, since their name does
not show whether it is present; so are boards whose devices share links unevenly (V100, MI300X).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rankscope.records.rows import RankSummary

__all__ = ["UNKNOWN", "Link", "link_between", "link_of"]

UNKNOWN = "unknown"


class Link(NamedTuple):
    """One direction of a device's link, 10^9 bytes per second."""

    name: str
    gb_s: float


_LINKS = (
    # NVIDIA A100 data sheet: NVLink 600 GB/s, both directions together.
    (r"NVIDIA A100-SXM4-(40|80)GB", Link("NVLink 3", 300.0)),
    # NVIDIA H100 data sheet, column SXM: NVLink 900 GB/s, both directions. This is the name of the SXM module.
    (r"NVIDIA H100 80GB HBM3", Link("NVLink 4", 450.0)),
    # NVIDIA H200 data sheet, column SXM: NVLink 900 GB/s, both directions. The NVL card has NVL in its name.
    (r"NVIDIA H200", Link("NVLink 4", 450.0)),
    # NVIDIA Blackwell (HGX B200) data sheet: NVLink 1.8 TB/s a GPU, both directions.
    (r"NVIDIA B200", Link("NVLink 5", 900.0)),
    # NVIDIA T4 data sheet: x16 PCIe Gen3, 32 GB/s both directions; no NVLink.
    (r"Tesla T4", Link("PCIe 3 x16", 16.0)),
    # NVIDIA L4 and L40S data sheets: PCIe Gen4 x16, 64 GB/s both directions; no NVLink.
    (r"NVIDIA L4|NVIDIA L40S", Link("PCIe 4 x16", 32.0)),
)


def link_of(device: str | None) -> Link | None:
    """Return the link of a device by its name, None if unknown."""
    return next((link for pattern, link in _LINKS if device and re.fullmatch(pattern, device)), None)


def link_between(group: Sequence[int], ranks: Mapping[int, RankSummary]) -> Link | None:
    """Return the link within a group of ranks, None if it crosses hosts or anything is unknown."""
    members = [ranks.get(rank) for rank in group]
    places = {(member.host, member.device) if member else (None, None) for member in members}
    if len(members) < 2 or len(places) != 1:
        return None
    host, device = places.pop()
    return link_of(device) if host else None
