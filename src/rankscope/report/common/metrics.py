"""What a number means: the definition that the page shows on hover. docs/metrics.md is made from all of them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Metric"]


class Metric(NamedTuple):
    """One number: how it is called, its unit, what it is, what is in and out, and how HTA's differs."""

    heading: str
    """Heading of docs/metrics.md under which it is listed."""
    label: str
    unit: str
    definition: str
    bounds: str = ""
    """What is in and what is out."""
    hta: str = ""
    """How the number of the same or a similar name in HTA differs."""
    accelerator: bool = False
    """Whether it is only known of jobs on accelerators."""

    @property
    def hover(self) -> str:
        """The definition as it is shown on hover: unit, definition, bounds."""
        return " ".join(part for part in (f"[{self.unit}]", self.definition, self.bounds) if part)
