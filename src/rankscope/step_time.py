"""How long a step takes, from what its host saw: in the ranks as they train, and in the report.

A host launches work and goes on. Where it waits for its device in each step, its steps are the job's; where it does so
every tenth step only (``loss.item()``, a line in the log), nine steps show how long launching takes and one the rest.
Then no single step tells how long a step takes, and a median of steps least of all: the mean of ten does.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median, median_low

__all__ = ["Pace", "beat", "usual"]

_LONG = 1.5
"""A step of so many medians is one in which the host waited."""
_LEAST_WAITS = 4
"""Fewer are no rhythm."""
_REGULAR = 0.75
"""Share of the distances between waits that must be the same."""
_REMEMBERED = 256
_ENOUGH = 8
"""Fewer steps are no measure."""
_SETTLED = 64
"""In the first steps nobody is called slow: they compile and allocate, and the beat of the rest does not show yet."""


def beat(step_ms: Sequence[float]) -> int:
    """Every how many of these consecutive steps the host waits for its device; 1 where no rhythm shows."""
    if not step_ms:
        return 1
    longer = _LONG * median_low(step_ms)
    waits = [number for number, took in enumerate(step_ms) if took > longer]
    if len(waits) < _LEAST_WAITS:
        return 1
    distances = [later - earlier for earlier, later in pairwise(waits)]
    length, often = Counter(distances).most_common(1)[0]
    return length if often >= _REGULAR * len(distances) else 1


def usual(step_ms: Sequence[float]) -> float:
    """The median of these consecutive steps, each taken as the mean over a beat; 0 of none."""
    return _usual(step_ms, beat(step_ms))


def _usual(step_ms: Sequence[float], length: int) -> float:
    if length == 1:
        return median(step_ms) if step_ms else 0.0
    sums = list(accumulate(step_ms, initial=0.0))
    return median(end - begin for begin, end in zip(sums, sums[length:], strict=False)) / length


class Pace:
    """A rank's last steps that nobody recorded.

    Attributes:
        beat: as the function of that name says.
        usual_ms: a usual step; 0 while nothing is known.
    """

    def __init__(self) -> None:
        self.beat = 1
        self.usual_ms = 0.0
        self._recent: deque[float] = deque(maxlen=_REMEMBERED)
        self._since_beat_ms: list[float] = []
        self._unseen = 0
        self._seen = 0

    @property
    def recent_ms(self) -> list[float]:
        """What is remembered, oldest first."""
        return list(self._recent)

    def add(self, took_ms: float) -> float:
        """One more step.

        Returns:
            How many usual steps the slowest step of the beat that ends here took if its others were usual ones; 0
            within a beat, in the first steps, and while nothing is known.
        """
        self._seen += 1
        self._recent.append(took_ms)
        self._since_beat_ms.append(took_ms)
        slowness = 0.0
        if len(self._since_beat_ms) >= self.beat:
            if self.usual_ms and self._seen > _SETTLED:
                slowness = sum(self._since_beat_ms) / self.usual_ms - (self.beat - 1)
            self._since_beat_ms.clear()
        self._unseen += 1
        remembered = len(self._recent)
        # A look costs 0.1 us for each step it looks at, so what is remembered is looked at anew when an eighth is new.
        if self._unseen >= max(_ENOUGH, remembered // 8) and remembered >= self._shows_beat:
            self._unseen = 0
            self.beat = beat(self._recent)
            self.usual_ms = _usual(self._recent, self.beat)
        return slowness

    @property
    def _shows_beat(self) -> int:
        """Steps in which the beat that is known would show again."""
        return 0 if self.beat == 1 else min((_LEAST_WAITS + 1) * self.beat, _REMEMBERED)

    def forget(self) -> None:
        """A window was recorded: what is remembered from here on are the steps after it."""
        self._recent.clear()
        self._since_beat_ms.clear()
        self._unseen = 0
