"""Which ranks share a host, so that only links of one kind are compared.

A link within a host is several times as fast as one between hosts, by design. Hosts are known by name, else by the
numbers of the devices: launchers give the ranks of a host the devices 0, 1, 2, ..., in order of ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.analysis.rank.view import RankView
from rankscope.device_links import link_of

__all__ = ["Layout", "layout_of"]

EVEN = "NVLink"
"""Devices of the table in ``device_links`` that are joined by it are joined evenly, by switches; those on PCIe are not:
two of them share a switch, or a socket, or neither."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The hosts of a window's ranks."""

    hosts: tuple[str, ...] | None
    """Per column: name of the host, or a label; None if unknown."""
    even: bool
    """Whether the devices of a host are known to be linked evenly."""

    def spread(self, columns: Sequence[int]) -> tuple[int, ...] | None:
        """Return how many of these ranks each host has, in ascending order; None if unknown."""
        if self.hosts is None:
            return None
        return tuple(sorted(Counter(self.hosts[column] for column in columns).values()))

    def alike(self, columns: Sequence[int]) -> bool:
        """Return whether links among so placed ranks are known to be equal by design, wherever the ranks are."""
        return self.hosts is not None and (self.even or len({self.hosts[column] for column in columns}) > 1)


def layout_of(views: Sequence[RankView]) -> Layout:
    """Return where the ranks run, as far as their traces show it."""
    even = all((link := link_of(view.trace.meta.device)) is not None and EVEN in link.name for view in views)
    names = [view.trace.meta.host for view in views]
    if all(names):
        return Layout(tuple(name or "" for name in names), even)
    numbers = [_device(view) for view in views]
    # A rank that sees one device only calls it 0 wherever it is.
    if None in numbers or len(set(numbers)) < 2:
        return Layout(None, even)
    return Layout(tuple(f"from rank {view.rank - (own or 0)}" for view, own in zip(views, numbers, strict=True)), even)


def _device(view: RankView) -> int | None:
    """Return the number of the rank's device; None if it has none or several."""
    numbers = view.trace.events.pid[view.trace.events.stream >= 0]
    return int(numbers[0]) if len(numbers) and bool((numbers == numbers[0]).all()) else None
