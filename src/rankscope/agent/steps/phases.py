"""Which part of a step the training thread is in, and how long each part took.

Collectives make the steps of all ranks equally long, so durations tell that a step was slow, and never who made it so.
The parts tell: a rank that is late spends the time before or in its forward, and the others wait in their backward.
"""

from __future__ import annotations

from time import perf_counter_ns

from rankscope.agent.steps.device_times import DeviceTimes, Marks

__all__ = ["PARTS", "Phases"]

PARTS = ("before", "forward", "backward", "after")
_BEFORE, _FORWARD, _BACKWARD, _AFTER = range(4)


class Phases:
    """A clock of four hands, one of which runs. Marks that do not come leave their part at 0; the parts add up.

    Args:
        device: has such a clock of its own, and is told where the parts end.
    """

    def __init__(self, device: DeviceTimes | None = None) -> None:
        self._device = device
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
        self._enter(_FORWARD, _BEFORE if self._part == _AFTER else self._part)

    def backward(self) -> None:
        """The outermost backward begins."""
        self._enter(_BACKWARD, self._part)

    def backward_ended(self) -> None:
        """The outermost backward has returned."""
        self._enter(_AFTER, self._part)

    def take(self, now: int) -> list[int]:
        """The step ends at ``now`` (``perf_counter_ns``): its four parts in ns; the next begins before its forward."""
        self._spent[self._part] += now - self._since
        spent, self._spent = self._spent, [0, 0, 0, 0]
        self._part, self._since = _BEFORE, now
        return spent

    def device_step(self, *, recorded: bool) -> Marks | None:
        """The step ends, before it is taken: what its times on the device can be read from later."""
        return self._device.step_ended(self._part, recorded=recorded) if self._device is not None else None

    def _enter(self, part: int, ended: int) -> None:
        now = perf_counter_ns()
        self._spent[ended] += now - self._since
        self._part, self._since = part, now
        if self._device is not None:
            self._device.ended(ended)
