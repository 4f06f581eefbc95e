"""Convert JSON values of any type to int64, exactly. Fast for the values that Kineto writes, tolerant of all others."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BAD", "exact_float_limit", "floats", "ids", "integers", "nanoseconds", "needs_exact_text"]

I64 = NDArray[np.int64]
BAD = np.iinfo(np.int64).min
"""Marks a value that is not a time."""
exact_float_limit = float(1 << 43)
"""Microseconds up to which a double represents single nanoseconds: its spacing is 2**-10 us below 2**43. Kineto's
relative times stay below (its base is a multiple of 7,889,238 s); absolute ones with decimals do not."""
_MAX_US = 4.0e15
"""4e18 ns: the sum with a base of today still fits into int64."""
_MAX_NS = 4_000_000_000_000_000_000


def needs_exact_text(values: NDArray[Any]) -> bool:
    """Return whether doubles lost nanoseconds, so that the text has to be read again as decimals."""
    return values.dtype.kind == "f" and bool((np.abs(values) >= exact_float_limit).any())


def nanoseconds(values: list[Any]) -> tuple[I64, NDArray[Any] | None]:
    """Convert microseconds (int, float, decimal or text) to nanoseconds; ``BAD`` where there is no number.

    The second result is the raw array if it consists of plain numbers that may have lost digits, for
    :func:`needs_exact_text`.
    """
    if not values:
        return np.empty(0, np.int64), None
    try:
        raw = np.array(values)
    except (ValueError, OverflowError):
        raw = np.empty(0, object)
    if raw.ndim != 1 or raw.dtype.kind not in "if":
        return np.fromiter(map(_one_time, values), np.int64, len(values)), None
    # the values that Kineto writes; not NaN
    if raw.dtype.kind == "f" and raw.min() >= 0 and raw.max() < exact_float_limit:
        whole = np.floor(raw)
        raw -= whole
        raw *= 1000.0
        return whole.astype(np.int64) * 1000 + np.rint(raw).astype(np.int64), None
    if raw.dtype.kind == "i":
        wild = np.abs(raw) > int(_MAX_US)
        times = np.where(wild, 0, raw).astype(np.int64) * 1000
    else:
        wild = ~(np.abs(raw) <= _MAX_US)  # NaN is wild
        calm = np.where(wild, 0.0, raw)
        whole = np.floor(calm)
        # In two parts: the product of all digits and 1000 would be rounded a second time.
        times = whole.astype(np.int64) * 1000 + np.rint((calm - whole) * 1000.0).astype(np.int64)
    times[wild] = BAD
    return times, raw


def _one_time(value: Any) -> int:
    if value.__class__ is int:
        time = value * 1000
    else:
        if value is None or isinstance(value, bool):
            return BAD
        try:
            exact = Decimal(value) if isinstance(value, (str, float, Decimal)) else None
            if exact is None or not exact.is_finite() or exact.adjusted() > 20:
                return BAD
            time = int((exact * 1000).to_integral_value())
        except (InvalidOperation, ValueError):
            return BAD
    return time if abs(time) <= _MAX_NS else BAD


def integers(values: list[Any], missing: int = -1) -> I64:
    """Convert identifiers and sizes; ``missing`` for none, or for one that does not fit (2**64-1 is CUPTI's "none")."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_one_integer(v, missing) for v in values], np.int64)


def _one_integer(value: Any, missing: int) -> int:
    if value.__class__ is not int:
        try:
            value = int(value) if isinstance(value, (int, str, float, Decimal)) and len(str(value)) < 32 else missing
        except (ValueError, OverflowError, InvalidOperation):
            return missing
    return value if -(1 << 62) < value < 1 << 62 else missing


def ids(values: list[Any], texts: dict[str, int]) -> I64:
    """Convert process and thread ids. Text such as ``Spans`` gets -2, -3 ... in order of appearance (-1 is used by
    Kineto)."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_one_id(v, texts) for v in values], np.int64)


def _one_id(value: Any, texts: dict[str, int]) -> int:
    if value.__class__ is int and -(1 << 62) < value < 1 << 62:
        return int(value)
    text = str(value)[:200]
    digits = text.removeprefix("stream ")  # 2021: "tid": "stream 7"
    if digits.isascii() and digits.isdigit() and len(digits) < 19:
        return int(digits)
    return texts.setdefault(text, -2 - len(texts))


def floats(values: list[Any]) -> NDArray[np.float64]:
    """Convert measures such as bandwidth; 0 where there is no finite number."""
    try:
        result = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        result = np.array([v if isinstance(v, (int, float)) and abs(v) < 1e30 else 0.0 for v in values], np.float64)
    return np.where(np.isfinite(result), result, 0.0)
