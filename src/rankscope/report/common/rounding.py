"""Round a report once, so that every writer shows the same numbers."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

from rankscope.records.report import ClusterReport, ReportError
from rankscope.records.rows import RankSummary

__all__ = ["SHARES", "tidy"]

SHARES = ("compute_pct", "exposed_comm_pct", "memcpy_pct", "idle_pct")
"""Shares of a rank's recorded window that are always present. With ``fused_pct``, if present, they sum to 100."""

_DECIMALS = (("pct", 2), ("ms", 4), ("us", 3), ("ms_per_step", 4), ("gb_s", 3), ("p_value", 9))
_OTHER_DECIMALS = 6
_SHARE_TOLERANCE = 0.5
"""A sum farther than this from 100 is not a rounding error: it is reported."""


class _Tidied(ClusterReport):
    """A rounded report, which several writers use in turn."""


def tidy(report: ClusterReport) -> ClusterReport:
    """Return a rounded copy that can be written as JSON; a report that is such a copy, itself.

    Values that are not finite become None, and shares that do not sum to 100 are left unchanged; both are listed in
    ``errors``.
    """
    if isinstance(report, _Tidied):
        return report
    lost: list[str] = []
    clean = _Tidied(**_values(report, "", lost))
    problems = [_balance(rank) for rank in clean.ranks]
    messages = [message for message in problems if message]
    if lost:
        names = ", ".join(sorted(set(lost))[:6])
        messages.append(f"{len(lost)} value(s) were not finite numbers and are left out: {names}")
    known = {error.message for error in clean.errors}
    clean.errors.extend(ReportError(where="report", message=m) for m in messages if m not in known)
    return clean


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _values(record: Any, path: str, lost: list[str]) -> dict[str, Any]:
    return {name: _value(getattr(record, name), name, path, lost) for name in _names(record.__class__)}


def _value(value: Any, name: str, path: str, lost: list[str]) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            lost.append(f"{path}{name}")
            return None
        return round(float(value), _decimals(name)) + 0.0  # + 0.0 turns -0.0 into 0.0
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [_value(item, name, path, lost) for item in value]
    if isinstance(value, dict):
        outer = path + name + "."
        # HTA's own numbers have their unit in the key; a table such as step_ms has it in its name.
        return {str(key): _value(item, _unit_name(name, str(key)), outer, lost) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        return kind(**_values(value, f"{name}.", lost))
    if hasattr(value, "item"):  # a numpy scalar from HTA's frames, without importing numpy
        return _value(value.item(), name, path, lost)
    return str(value)


def _unit_name(outer: str, key: str) -> str:
    return outer if _decimals(outer) != _OTHER_DECIMALS else key


@functools.lru_cache(1 << 10)
def _decimals(name: str) -> int:
    for suffix, decimals in _DECIMALS:
        if name == suffix or name.endswith(f"_{suffix}"):
            return decimals
    return _OTHER_DECIMALS


def _balance(rank: RankSummary) -> str | None:
    """Add the hundredths lost in rounding to the largest share. Return what is wrong, if anything."""
    shares = [getattr(rank, name) for name in SHARES]
    if all(share is None for share in shares):
        return None
    hundredths = [round((share or 0.0) * 100) for share in shares]
    whole = sum(hundredths) + round((rank.fused_pct or 0.0) * 100)
    off = 10_000 - whole
    if off == 0:
        return None
    if abs(off) > _SHARE_TOLERANCE * 100 or None in shares:
        return f"rank {rank.rank}: the shares of its time sum to {whole / 100:g} %, not to 100 %"
    largest = max(range(len(shares)), key=lambda index: hundredths[index])
    setattr(rank, SHARES[largest], (hundredths[largest] + off) / 100)
    return None
