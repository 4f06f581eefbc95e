"""How long each part of a step took, from the marks that the training thread has left in it.

Collectives make the steps of all ranks equally long, so the duration of a step shows that it was slow but not which
rank made it slow. The parts do: a late rank spends the time before or in its forward, and the others wait in their
backward.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["MOST_BACKWARDS", "PARTS", "Mark", "ended_by", "part_after", "split"]

PARTS = ("before", "forward", "backward", "after")
_BEFORE, _FORWARD, _BACKWARD, _AFTER = range(4)
_AFTER_MARK = {"forward": _FORWARD, "backward": _BACKWARD, "backward_ended": _AFTER}
MOST_BACKWARDS = 64
"""Of a step, whose bounds are kept."""

Mark = tuple[str, int, "tuple[int, int] | None"]
"""``forward``: a root model begins its forward; ``backward`` and ``backward_ended``: begin and end of the outermost
backward. Then the time (``perf_counter_ns``), and what the thread's clock has counted until then, if it was read."""


def part_after(mark: str) -> int:
    """Return the number of the part that follows a mark; any other mark ends a step, and the next one begins."""
    return _AFTER_MARK.get(mark, _BEFORE)


def ended_by(mark: str, part: int) -> int:
    """Return the part to which the time since the last mark belongs. A forward that follows a backward of the same step
    is that of the next micro-batch, and the time since that backward was spent on getting it."""
    return _BEFORE if mark == "forward" and part == _AFTER else part


def split(begin: int, marks: Iterable[Mark], end: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the four parts of a step in ns, which add up to it, and begin and end of its backwards. A part whose mark
    did not come is 0."""
    spent, part, since = [0, 0, 0, 0], _BEFORE, begin
    backwards: list[tuple[int, int]] = []
    for name, now, _ in marks:
        spent[ended_by(name, part)] += now - since
        if name == "backward_ended" and part == _BACKWARD and len(backwards) < MOST_BACKWARDS:
            backwards.append((since, now))
        part, since = part_after(name), now
    spent[part] += end - since
    return spent, backwards
