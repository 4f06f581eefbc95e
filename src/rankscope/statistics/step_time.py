"""How long a step takes, from the step times of its host: in the ranks as they train, and in the report.

A host launches work and continues. Where it waits for its device in each step, its step times are those of the job.
Where it waits in every tenth step only (``loss.item()``, a line in the log), nine step times show how long launching
takes, and the tenth shows the rest. Then no single step time is that of the job, and neither is their median: the mean
over ten steps is. The number of steps from one wait to the next is called the synchronisation interval.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

__all__ = ["StepTimeEstimate", "sync_interval", "usual_step_ms"]

_LONG = 1.5
"""In a step longer than this many medians the host waited for its device."""
_LEAST_WAITS = 4
"""Fewer waits show no interval."""
_REGULAR = 0.75
"""Share of the distances between waits that must be equal."""
_REMEMBERED = 256
_ENOUGH = 8
"""Fewer steps are no measurement."""
_SETTLED = 64
"""None of the first steps is called slow: they compile and allocate, and the interval of the rest is not known yet."""


def _median(values: Iterable[float], *, low: bool = False) -> float:
    """The median, of two in the middle the lower one or their mean.

    Not from ``statistics``: this is imported into a training process, where a module of the standard library that torch
    has not imported may be one of the script's own folder.
    """
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return ordered[middle - 1] if low else (ordered[middle - 1] + ordered[middle]) / 2


def sync_interval(step_ms: Sequence[float]) -> int:
    """Return the number of steps from one wait of the host for its device to the next, 1 where no interval shows.

    Args:
        step_ms: times of consecutive steps.
    """
    if not step_ms:
        return 1
    longer = _LONG * _median(step_ms, low=True)
    length = _interval_of(step_ms, longer)
    if length > 1 or len(step_ms) < _LEAST_WAITS:
        return length
    # A busy machine makes many a short step longer than that, and no wait shows among them. The longest steps are waits
    # where there are any, and what lies half way to them, as ratios go, is none.
    between = (longer * sorted(step_ms)[-_LEAST_WAITS]) ** 0.5
    return _interval_of(step_ms, between) if between > longer else 1


def _interval_of(step_ms: Sequence[float], longer: float) -> int:
    waits = [number for number, took in enumerate(step_ms) if took > longer]
    if len(waits) < _LEAST_WAITS:
        return 1
    distances = [later - earlier for earlier, later in pairwise(waits)]
    length, often = Counter(distances).most_common(1)[0]
    return length if often >= _REGULAR * len(distances) else 1


def usual_step_ms(step_ms: Sequence[float]) -> float:
    """Return the median step time, each step taken as the mean over a synchronisation interval; 0 without any step.

    Args:
        step_ms: times of consecutive steps.
    """
    return _usual(step_ms, sync_interval(step_ms))


def _usual(step_ms: Sequence[float], length: int) -> float:
    if length == 1:
        return _median(step_ms) if step_ms else 0.0
    sums = list(accumulate(step_ms, initial=0.0))
    return _median(end - begin for begin, end in zip(sums, sums[length:], strict=False)) / length


class StepTimeEstimate:
    """Running estimate of a rank's step time, from its last steps that were not recorded.

    Attributes:
        beat: the synchronisation interval, in steps.
        usual_ms: a usual step; 0 while it is not known.
    """

    def __init__(self) -> None:
        self.sync_interval = 1
        self.usual_ms = 0.0
        self._recent: deque[float] = deque(maxlen=_REMEMBERED)
        self._since_sync_ms: list[float] = []
        self._unseen = 0
        self._seen = 0

    @property
    def recent_ms(self) -> list[float]:
        """The step times that are remembered, oldest first."""
        return list(self._recent)

    def add(self, took_ms: float) -> float:
        """Add a step.

        Returns:
            How many usual steps the slowest step of the interval that ends here took, if the others of the interval
            were usual ones; 0 within an interval, in the first steps, and while the usual step is not known.
        """
        self._seen += 1
        self._recent.append(took_ms)
        self._since_sync_ms.append(took_ms)
        slowness = 0.0
        if len(self._since_sync_ms) >= self.sync_interval:
            if self.usual_ms and self._seen > _SETTLED:
                slowness = sum(self._since_sync_ms) / self.usual_ms - (self.sync_interval - 1)
            self._since_sync_ms.clear()
        self._unseen += 1
        remembered = len(self._recent)
        # An estimate costs 0.1 us for each remembered step, so it is made again when an eighth of them is new.
        if self._unseen >= max(_ENOUGH, remembered // 8) and remembered >= self._is_interval:
            self._unseen = 0
            self.sync_interval = sync_interval(self._recent)
            self.usual_ms = _usual(self._recent, self.sync_interval)
        return slowness

    @property
    def _is_interval(self) -> int:
        """Steps in which the known interval would show again."""
        return 0 if self.sync_interval == 1 else min((_LEAST_WAITS + 1) * self.sync_interval, _REMEMBERED)

    def forget(self) -> None:
        """Forget all steps, because a window was recorded: only the steps after it count."""
        self._recent.clear()
        self._since_sync_ms.clear()
        self._unseen = 0
