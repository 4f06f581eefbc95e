"""Which steps belong to which window. Pure arithmetic on a ScheduleSpec."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.model import ScheduleSpec

__all__ = ["Window", "window_at"]


@dataclass(frozen=True, slots=True)
class Window:
    """Step numbers from 0: ``warm`` is the first warm-up step, ``first`` to ``last`` (inclusive) are recorded."""

    number: int
    warm: int
    first: int
    last: int

    def moved(self, first: int) -> Window:
        """The same window with another first step."""
        shift = first - self.first
        return Window(self.number, self.warm + shift, first, self.last + shift)


def window_at(schedule: ScheduleSpec, number: int) -> Window | None:
    """Window ``number`` of a schedule, None after the last.

    The end of step 0 is the first thing an agent sees, so no warm-up starts before step 1.
    """
    if number >= schedule.repeat:
        return None
    cycle = schedule.wait + schedule.warmup + schedule.active
    warm = schedule.skip_first + number * cycle + schedule.wait
    if schedule.skip_first + schedule.wait == 0:
        warm += 1
    first = warm + schedule.warmup
    return Window(number, warm, first, first + schedule.active - 1)
