"""Ranges that lie within each other, as calls on one thread do: where the deepest one is which."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["deepest"]


def deepest(ranges: Iterable[tuple[int, int, int]]) -> Iterable[tuple[int, int, int]]:
    """Start, end and name of ranges of one thread, in order of start, the outer ones first -> disjoint stretches, in
    order, each with the name of the deepest range there. A range ends with the one that it lies in."""
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
