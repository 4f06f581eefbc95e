"""``report.json``: the contract that other programs read."""

from __future__ import annotations

import json
from typing import Any

from rankscope.model import ClusterReport, to_plain
from rankscope.report.tidy import tidy

__all__ = ["render"]

_FIRST = ("schema_version", "run", "verdict", "ranks", "clock", "collectives", "findings", "errors")


def render(report: ClusterReport) -> str:
    """Return the report as JSON, rounded; keys in the order in which a person would read them.

    Lone surrogates, which UTF-8 cannot hold, are written as JSON escapes.
    """
    plain: dict[str, Any] = to_plain(tidy(report))
    ordered = {key: plain.pop(key) for key in _FIRST} | plain
    text = json.dumps(ordered, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
