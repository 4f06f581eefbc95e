"""Lines of Chrome JSON. Times are whole nanoseconds from the timeline's zero, written as microseconds with three
decimals: exact, since no more than 15 digits come of it in windows less than ten days apart."""

from __future__ import annotations

__all__ = ["ARROW_BYTES", "SLICE_BYTES", "arrow", "slice_line", "us"]

SLICE_BYTES = 140
"""Upper bound of a slice's line without its name, category and arguments."""
ARROW_BYTES = 150
"""Upper bound of an arrow's end, given a name of at most 20 characters."""


def us(ns: int) -> str:
    """Microseconds, three decimals."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def slice_line(pid: int, tid: int, start: int, end: int, category: str, name: str, args: str) -> str:
    """One slice. ``name`` is quoted already, ``args`` the inside of a JSON object."""
    return (
        f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{us(start)},"dur":{us(end - start)},'
        f'"cat":"{category}","name":{name},"args":{{{args}}}}}'
    )


def arrow(phase: str, number: int, pid: int, tid: int, time: int, category: str) -> str:
    """One end of an arrow (``s`` start, ``t`` between, ``f`` finish), bound to the slice around ``time``."""
    binding = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}","id":{number},"pid":{pid},"tid":{tid},"ts":{us(time)},'
        f'"cat":"{category}","name":"{category}"{binding}}}'
    )
