"""Definitions of the numbers, which the page shows on hover. docs/metrics.md is made from all of them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Metric"]


class Metric(NamedTuple):
    """One number: its name, unit and definition, what it includes and excludes, and how HTA's differs."""

    heading: str
    """Heading of docs/metrics.md under which it is listed."""
    label: str
    unit: str
    definition: str
    bounds: str = ""
    """What is included and excluded."""
    hta: str = ""
    """How the number of the same or a similar name in HTA differs."""
    accelerator: bool = False
    """Whether it is known for jobs on accelerators only."""

    @property
    def hover(self) -> str:
        """The definition as shown on hover: unit, definition, bounds."""
        return " ".join(part for part in (f"[{self.unit}]", self.definition, self.bounds) if part)
