"""``report.json``: the contract that other programs read."""

from __future__ import annotations

import json
from typing import Any

from rankscope.records.report import ClusterReport
from rankscope.report.common.rounding import tidy

__all__ = ["render"]

_FIRST = ("schema_version", "run", "verdict", "ranks", "clock", "collectives", "findings", "errors")


def render(report: ClusterReport) -> str:
    """Return the report as JSON, rounded; keys in the order in which a person would read them.

    Lone surrogates, which UTF-8 cannot hold, are written as JSON escapes.
    """
    fields: dict[str, Any] = dict(vars(tidy(report)))
    ordered = {key: fields.pop(key) for key in _FIRST} | fields
    # Records become objects on the way out: copying a thousand ranks' steps first would take seconds.
    text = json.dumps(ordered, indent=1, ensure_ascii=False, allow_nan=False, default=vars) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
