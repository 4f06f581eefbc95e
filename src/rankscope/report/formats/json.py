"""``report.json``: the contract that other programs read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rankscope.records.codec import SCHEMA_VERSION
from rankscope.records.diff import RunDiff
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport, VerdictKind
from rankscope.records.sweep import SweepResult
from rankscope.report.common.rounding import tidy

__all__ = ["SCHEMAS", "in_first_form", "render", "schema"]

_FIRST = ("schema_version", "run", "verdict", "ranks", "clock", "collectives", "findings", "errors")

SCHEMAS = {"report": ClusterReport, "run": RunManifest, "diff": RunDiff, "sweep": SweepResult}
"""Name of a file without ``.json``, or of a verb that prints JSON -> its record."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one of :data:`SCHEMAS`. It permits keys that later versions add."""
    import msgspec

    made = msgspec.json.schema(SCHEMAS[name])
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:rankscope:{name}:{SCHEMA_VERSION}"}
    return about | made


_KINDS_SINCE: dict[VerdictKind, VerdictKind] = {"memory_bound": "balanced", "contended": "insufficient_data"}
"""Kinds of verdict that the first readers of 1.0 do not know -> the kind that was used before: no rank is named, or
there is no verdict. The sentence states the rest."""


def in_first_form(report: ClusterReport) -> ClusterReport:
    """Return the report with the kinds of verdict of the first schema 1.0. Keys have been added since, too, which
    readers ignore."""
    kind = _KINDS_SINCE.get(report.verdict.kind)
    return report if kind is None else replace(report, verdict=replace(report.verdict, kind=kind))


def render(report: ClusterReport) -> str:
    """Return the report as JSON, rounded; keys in the order in which a person would read them.

    Lone surrogates, which UTF-8 cannot hold, are written as JSON escapes.
    """
    fields: dict[str, Any] = dict(vars(tidy(report)))
    ordered = {key: fields.pop(key) for key in _FIRST} | fields
    # Records are converted while writing: copying a thousand ranks' steps first would take seconds.
    text = json.dumps(ordered, indent=1, ensure_ascii=False, allow_nan=False, default=vars) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
