"""Lines of Chrome JSON. Times are whole nanoseconds from the timeline's origin, written as microseconds with three
decimals. This is exact: they have at most 15 digits if windows are less than ten days apart."""

from __future__ import annotations

__all__ = ["ARROW_BYTES", "SLICE_BYTES", "arrow", "slice_line", "us"]

SLICE_BYTES = 140
"""Upper bound of a slice's line without its name, category and arguments."""
ARROW_BYTES = 150
"""Upper bound of an arrow's end, given a name of at most 20 characters."""


def us(ns: int) -> str:
    """Return microseconds with three decimals."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def slice_line(pid: int, tid: int, start: int, end: int, category: str, name: str, args: str) -> str:
    """Return one slice. ``name`` is quoted already, ``args`` is the content of a JSON object."""
    return (
        f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{us(start)},"dur":{us(end - start)},'
        f'"cat":"{category}","name":{name},"args":{{{args}}}}}'
    )


def arrow(phase: str, number: int, pid: int, tid: int, time: int, category: str) -> str:
    """Return one end of an arrow (``s`` start, ``t`` between, ``f`` finish), bound to the slice around ``time``."""
    binding = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}","id":{number},"pid":{pid},"tid":{tid},"ts":{us(time)},'
        f'"cat":"{category}","name":"{category}"{binding}}}'
    )
