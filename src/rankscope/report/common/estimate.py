"""A number of a report with its uncertainty, for calculations and for display."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from rankscope.report.common import wording

__all__ = ["Estimate"]


@functools.total_ordering
@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """A number with its uncertainty: ``38 ± 4 ms``.

    It converts with ``float()``, can be compared with numbers and other estimates, by value, and formats like a number
    (``f"{saves:.1f}"``) or, without a format, as text.
    """

    value: float
    error: float | None = None
    """Half of the interval in which the true value is expected, as the report states it; None if it is not known."""
    unit: str = "ms"

    @property
    def low(self) -> float:
        """``value - error``; the value, if the error is not known."""
        return self.value - (self.error or 0.0)

    @property
    def high(self) -> float:
        """``value + error``, likewise."""
        return self.value + (self.error or 0.0)

    def __float__(self) -> float:
        return float(self.value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Estimate):
            return (self.value, self.error, self.unit) == (other.value, other.error, other.unit)
        return isinstance(other, (int, float)) and self.value == other

    def __lt__(self, other: object) -> bool:
        if isinstance(other, Estimate) and other.unit != self.unit:
            raise TypeError(f"{self.unit} and {other.unit} cannot be compared")
        if not isinstance(other, (int, float, Estimate)):
            return NotImplemented
        return self.value < float(other)

    def __hash__(self) -> int:
        return hash(self.value)  # as that of a number that it is equal to

    def __str__(self) -> str:
        return wording.plus_minus(self.value, self.error, f" {self.unit}")

    def __repr__(self) -> str:
        return str(self)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)
