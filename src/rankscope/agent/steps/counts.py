"""CPU time of the training thread by step and part, from counters that were not read at every bound.

The kernel's counters only grow, so that two reads show what was counted in between. Where that is one part of one step,
it is exact. Where it is several, as between two sampled steps, it is shared out: each part gets what such a part
usually takes. What is more goes to the rest of the steps, first where that was longer than usual, and never to a
backward: a backward is longer when a peer is late, and a rank that waited in it would look as if it had worked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from rankscope.agent.steps.phases import Mark

__all__ = ["REST", "WITHIN_BACKWARD", "Counts"]

REST, WITHIN_BACKWARD = 0, 1
_REMEMBERED = 9
"""Number of exact parts of which the median is the usual one."""
_NOTHING = (0, 0, 0, 0)

_Piece = tuple[int, int, int]
"""Number of a step, :data:`REST` or :data:`WITHIN_BACKWARD`, and duration in ns. What follows the last backward of a
step is counted to the rest of the next one: it is spent before the ranks meet again."""


class Counts:
    """Collects bounds and reads in order; a read settles all before it."""

    def __init__(self, now: int) -> None:
        self._last: tuple[int, int] | None = None
        self._at_mark = False
        self._pieces: list[_Piece] = []
        self._since = now
        self._usual = tuple((deque[int](maxlen=_REMEMBERED), deque[int](maxlen=_REMEMBERED)) for _ in range(2))
        self._found: dict[int, list[int]] = {}

    def step(self, number: int, marks: Iterable[Mark], end: int, counts: tuple[int, int] | None) -> None:
        """Add a step: its marks, its end, and the counts there if they were read."""
        following = number
        for name, now, read in marks:
            if name == "forward":
                continue
            self._bound(number, WITHIN_BACKWARD if name == "backward_ended" else REST, now)
            following = number + 1
            if read is not None:
                self._settle(read, at_mark=True)
        self._bound(following, REST, end)
        if counts is not None:
            self._settle(counts, at_mark=False)

    def take(self, number: int) -> Sequence[int]:
        """Return CPU time and time runnable but not running, in ns, of the whole step and of its backward."""
        found = self._found.pop(number, _NOTHING)
        return found[0] + found[2], found[1] + found[3], found[2], found[3]

    def _bound(self, number: int, part: int, now: int) -> None:
        length, self._since = now - self._since, now
        if self._pieces and self._pieces[-1][:2] == (number, part):
            length += self._pieces.pop()[2]
        self._pieces.append((number, part, length))

    def _settle(self, read: tuple[int, int], *, at_mark: bool) -> None:
        pieces, self._pieces = self._pieces, []
        last, self._last = self._last, read
        whole, self._at_mark = self._at_mark and at_mark, at_mark
        if last is None:
            return
        ran, held = max(read[0] - last[0], 0), max(read[1] - last[1], 0)
        if len(pieces) > 1:
            self._share(pieces, ran, held)
            return
        for number, part, length in pieces:
            self._give(number, part, ran, held)
            if whole:
                self._usual[part][0].append(ran)
                self._usual[part][1].append(length)

    def _share(self, pieces: list[_Piece], ran: int, held: int) -> None:
        usual = [[sorted(values)[len(values) // 2] if values else 0 for values in part] for part in self._usual]
        lengths = [length for _, _, length in pieces]
        own = [min(length, usual[part][0]) for _, part, length in pieces]
        longer = [max(length - max(usual[part]), 0) if part == REST else 0 for _, part, length in pieces]
        rest = [length if part == REST else has for (_, part, length), has in zip(pieces, own, strict=True)]
        rans = shared(ran, own, [has + more for has, more in zip(own, longer, strict=True)], rest)
        idle = [length - spent for length, spent in zip(lengths, rans, strict=True)]
        helds = shared(held, [min(*both) for both in zip(longer, idle, strict=True)], idle)
        for (number, part, _), spent, waited in zip(pieces, rans, helds, strict=True):
            self._give(number, part, spent, waited)

    def _give(self, number: int, part: int, ran: int, held: int) -> None:
        found = self._found.setdefault(number, [0, 0, 0, 0])
        found[2 * part] += ran
        found[2 * part + 1] += held


def shared(amount: int, *rooms: Sequence[int]) -> list[int]:
    """Share an amount among places.

    Args:
        amount: what to share.
        rooms: how much the places can take, each list no less than the one before it. A list is filled, in proportion
            to what is still free, before the next one is.

    Returns:
        Shares of the places; less than the amount together if it is more than they can take at all.
    """
    given = [0] * len(rooms[0])
    for room in rooms:
        free = [most - has for most, has in zip(room, given, strict=True)]
        total, left = sum(free), amount - sum(given)
        if total <= left:
            given = list(room)
        else:
            return [has + most * left // total for has, most in zip(given, free, strict=True)]
    return given
