"""Which part of a step the training thread is in, and how long each part took.

Collectives make the steps of all ranks equally long, so the duration of a step shows that it was slow but not which
rank made it slow. The parts do: a late rank spends the time before or in its forward, and the others wait in their
backward.
"""

from __future__ import annotations

from time import perf_counter_ns

from rankscope.agent.steps.device_times import DeviceTimes, Marks

__all__ = ["PARTS", "Phases"]

PARTS = ("before", "forward", "backward", "after")
_BEFORE, _FORWARD, _BACKWARD, _AFTER = range(4)
MOST_BACKWARDS = 64
"""Of a step, whose bounds are kept."""


class Phases:
    """Splits the time of a step into four parts, which add up to it. A part whose mark does not come stays 0.

    Args:
        device: is notified of the end of each part, to time it on the device.
    """

    def __init__(self, device: DeviceTimes | None = None) -> None:
        self._device = device
        self._part = _BEFORE
        self._since = perf_counter_ns()
        self._spent = [0, 0, 0, 0]
        self._backwards: list[tuple[int, int]] = []

    @property
    def now(self) -> str:
        """The part that the training thread is in."""
        return PARTS[self._part]

    def forward(self) -> None:
        """A root model begins its forward. After a backward of the same step this is the next micro-batch, and the time
        since that backward counts as ``before``, because it was spent on getting the micro-batch."""
        self._enter(_FORWARD, _BEFORE if self._part == _AFTER else self._part)

    def backward(self) -> None:
        """The outermost backward begins."""
        self._enter(_BACKWARD, self._part)

    def backward_ended(self) -> None:
        """The outermost backward has returned."""
        begun, inside = self._since, self._part == _BACKWARD
        self._enter(_AFTER, self._part)
        if inside and len(self._backwards) < MOST_BACKWARDS:
            self._backwards.append((begun, self._since))

    def backwards(self) -> list[tuple[int, int]]:
        """Return begin and end (``perf_counter_ns``) of the backwards that have ended since the last call."""
        found, self._backwards = self._backwards, []
        return found

    def take(self, now: int) -> list[int]:
        """End the step at ``now`` (``perf_counter_ns``). Return its four parts in ns; the next step begins in
        ``before``."""
        self._spent[self._part] += now - self._since
        spent, self._spent = self._spent, [0, 0, 0, 0]
        self._part, self._since = _BEFORE, now
        return spent

    def device_step(self, *, recorded: bool) -> Marks | None:
        """Record the end of the step on the device; called before :meth:`take`. Return its events, to be read later."""
        return self._device.step_ended(self._part, recorded=recorded) if self._device is not None else None

    def _enter(self, part: int, ended: int) -> None:
        now = perf_counter_ns()
        self._spent[ended] += now - self._since
        self._part, self._since = part, now
        if self._device is not None:
            self._device.ended(ended)
