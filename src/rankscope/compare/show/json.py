"""``rankscope diff --format json``: one object, or a list of them for more than two runs."""

from __future__ import annotations

import json
from typing import Any

from rankscope.records.codec import to_plain
from rankscope.records.diff import RunDiff

__all__ = ["render"]

DECIMALS = 6


def render(diffs: list[RunDiff]) -> str:
    """Return the records, rounded."""
    plain = [_rounded(to_plain(diff)) for diff in diffs]
    return json.dumps(plain[0] if len(plain) == 1 else plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
