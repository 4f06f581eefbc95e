"""A difference in words and short tables, the same in every format."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rankscope.compare.significance import LEAST_SHARE
from rankscope.records.diff import DiffPart, DiffRow, RunDiff

__all__ = ["LABELS", "Section", "amount", "headline", "parts", "scaling_efficiency", "sections", "short", "steps_line"]

LABELS = {"slower": "Slower", "faster": "Faster", "same": "Same", "not_comparable": "Not comparable"}
_PARTS = {
    "host": "work of the host",
    "device": "work of the device",
    "transfer": "transfers between ranks",
    "unexplained": "not explained",
}
MOST_ROWS = 6
_MOST_SHAPES = 3
_SHAPE = re.compile(r"\[\d[\d, ]*\]")
_TITLES = {
    "kernel": "Compute",
    "beside": "Compute",
    "collective": "Collectives",
    "wait": "Waits",
    "time": "Time",
    "count": "Counts",
    "memory": "Memory",
}


@dataclass(frozen=True, slots=True)
class Section:
    """Rows of one kind."""

    title: str
    rows: list[tuple[str, str, str]]
    """Change, name, and further description."""


def headline(diff: RunDiff) -> str:
    """Return the step in one line."""
    step = diff.step
    if step.change is None or not step.before or step.after is None:
        return "no step time is known of both runs"
    percent, noise = 100 * step.change / step.before, 100 * (step.noise or 0) / step.before
    change = f"{step.change:+.1f} ms ({percent:+.1f} %, " if step.told else "~ ("
    return f"step {step.before:.1f} -> {step.after:.1f} ms, {change}noise {noise:.1f} %)"


def steps_line(diff: RunDiff) -> str:
    """Return what kind of steps is compared."""
    a, b = diff.before, diff.after
    line = f"{b.steps:,} {b.step_source} steps against {a.steps:,}"
    efficiency = scaling_efficiency(diff)
    if efficiency is not None:
        line += f"; scaling efficiency {100 * efficiency:.1f} % from {a.world_size:,} to {b.world_size:,} ranks"
    return line + (f", baseline of {a.runs} runs" if a.runs > 1 else "")


def scaling_efficiency(diff: RunDiff) -> float | None:
    """Return the work of a rank in a second, relative to the older run's; None for runs of one size, and for runs that
    are not comparable."""
    a, b = diff.before, diff.after
    sizes = a.world_size and b.world_size and a.world_size != b.world_size
    return a.step_ms / b.step_ms if sizes and not diff.reasons and a.step_ms and b.step_ms else None


def parts(diff: RunDiff) -> list[tuple[str, str]]:
    """Return each part of the difference: change and words. Parts below a hundredth of the step are ``~``."""
    least = 0.01 * max(diff.step.before or 0.0, diff.step.after or 0.0)
    return [(f"{part.ms:+.1f} ms" if abs(part.ms) > least else "~", _part(part)) for part in diff.parts]


def _part(part: DiffPart) -> str:
    most = max((abs(ms) for ms in part.ranks.values()), default=0.0)
    who = [(rank, ms) for rank, ms in part.ranks.items() if abs(ms) >= most / 2 and ms * part.ms > 0]
    if part.kind == "unexplained" or not who:
        return _PARTS[part.kind]
    shown = ", ".join(rank for rank, _ in who[:6]) + (" ..." if len(who) > 6 else "")
    mean = sum(ms for _, ms in who) / len(who)
    return f"{_PARTS[part.kind]}: {mean:+.1f} ms a step on rank{'s' * (len(who) > 1)} {shown}"


def sections(diff: RunDiff) -> list[Section]:
    """Return the differences beyond their noise, by kind; the rest is counted in the last section."""
    least = LEAST_SHARE * max(diff.step.before or 0.0, diff.step.after or 0.0)
    found: dict[str, list[tuple[str, str, str]]] = {}
    small, within = 0, 0
    for row in diff.rows:
        big = row.unit != "ms" or abs(row.change or 0.0) >= least
        if not (row.told or (row.kind in {"beside", "wait"} and big)):
            within += row.kind not in {"beside", "wait"}
        elif not big:
            small += 1
        else:
            found.setdefault(_TITLES[row.kind], []).append((_change(row), _what(row), row.detail))
    made = [Section(title, _cut(rows)) for title, rows in found.items()]
    rest = [f"{within} rows within their noise"] if within else []
    rest += [f"{small} beyond it but under {100 * LEAST_SHARE:g} % of the step"] if small else []
    return [*made, Section("Same", [("~", "; ".join(rest), "")])] if rest else made


def _cut(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    more = len(rows) - MOST_ROWS
    return rows if more <= 1 else [*rows[:MOST_ROWS], ("", f"and {more} more; --format json has all", "")]


def _change(row: DiffRow) -> str:
    before, after = amount(row.before, row.unit), amount(row.after, row.unit)
    if row.unit == "ms" or row.before is None or row.after is None or before == after:
        return amount(row.change, row.unit, sign=True)
    return f"{before} -> {after}"


def short(name: str) -> str:
    """Return ``aten::mm [8192,4096]x[4096,4096]`` from an operator and the shapes of all its arguments."""
    operator, begins, shapes = name.partition(" [")
    dims = _SHAPE.findall(shapes) if begins else []
    if not dims:
        return operator if begins else name
    shown = "x".join(dim.replace(" ", "") for dim in dims[:_MOST_SHAPES])
    return f"{operator} {shown}" + (" ..." if len(dims) > _MOST_SHAPES else "")


def _what(row: DiffRow) -> str:
    status = "" if row.status == "changed" else f"{row.status}: "
    ranks = f" on rank{'s' * (len(row.ranks) > 1)} {', '.join(map(str, row.ranks[:6]))}" if row.ranks else ""
    name = short(row.name) if row.kind == "kernel" else row.name
    module = f" in {row.module}" if row.module else ""
    return f"{status}{name}{module}{ranks}{' ...' if len(row.ranks) > 6 else ''}"


def amount(value: float | None, unit: str, *, sign: bool = False) -> str:
    """Return a number with its unit."""
    if value is None:
        return "?"
    plus = "+" if sign and value > 0 else ""
    if unit == "bytes":
        for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if abs(value) >= size:
                return f"{plus}{value / size:.1f} {name}"
        return f"{plus}{value:.0f} B"
    if unit == "count":
        return f"{plus}{value:,.6g}" if value < 1e5 else f"{plus}{value:,.0f}"
    return f"{plus}{value:.{2 if abs(value) < 1 else 1}f} {unit}"
