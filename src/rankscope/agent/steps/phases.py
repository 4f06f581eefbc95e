"""Which part of a step the training thread is in, and how long each part took.

Collectives make the steps of all ranks equally long, so durations tell that a step was slow, and never who made it so.
The parts tell: a rank that is late spends the time before or in its forward, and the others wait in their backward.
"""

from __future__ import annotations

from time import perf_counter_ns

__all__ = ["PARTS", "Phases"]

PARTS = ("before", "forward", "backward", "after")
_BEFORE, _FORWARD, _BACKWARD, _AFTER = range(4)


class Phases:
    """A clock of four hands, one of which runs. Marks that do not come leave their part at 0; the parts add up."""

    def __init__(self) -> None:
        self._part = _BEFORE
        self._since = perf_counter_ns()
        self._spent = [0, 0, 0, 0]

    @property
    def now(self) -> str:
        """The part in which the training thread is."""
        return PARTS[self._part]

    def forward(self) -> None:
        """A root model begins its forward. After a backward of the same step it has the next micro-batch, and what lay
        between was spent on getting that."""
        now = perf_counter_ns()
        self._spent[_BEFORE if self._part == _AFTER else self._part] += now - self._since
        self._part, self._since = _FORWARD, now

    def backward(self) -> None:
        """The outermost backward begins."""
        self._enter(_BACKWARD)

    def backward_ended(self) -> None:
        """The outermost backward has returned."""
        self._enter(_AFTER)

    def take(self, now: int) -> list[int]:
        """The step ends at ``now`` (``perf_counter_ns``): its four parts in ns; the next begins before its forward."""
        self._spent[self._part] += now - self._since
        spent, self._spent = self._spent, [0, 0, 0, 0]
        self._part, self._since = _BEFORE, now
        return spent

    def _enter(self, part: int) -> None:
        now = perf_counter_ns()
        self._spent[self._part] += now - self._since
        self._part, self._since = part, now
