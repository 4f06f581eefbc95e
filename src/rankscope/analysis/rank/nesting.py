"""Nested ranges, such as the calls on one thread: the deepest one at each time."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["deepest"]


def deepest(ranges: Iterable[tuple[int, int, int]]) -> Iterable[tuple[int, int, int]]:
    """Convert nested ranges of one thread to disjoint stretches, each with the name of the deepest range there.

    Input and output are (start, end, name), in order of start, the outer ranges first. A range ends at the latest with
    the one that contains it.
    """
    stack: list[tuple[int, int]] = []
    now = 0
    for start, end, name in ranges:
        while stack and stack[-1][0] <= start:
            until, top = stack.pop()
            if until > now:
                yield now, until, top
                now = until
        if stack and start > now:
            yield now, start, stack[-1][1]
        stack.append((end if not stack else min(end, stack[-1][0]), name))
        now = start
    while stack:
        until, top = stack.pop()
        if until > now:
            yield now, until, top
            now = until
