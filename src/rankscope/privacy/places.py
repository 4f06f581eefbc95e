"""Remove the location of files from a report."""

from __future__ import annotations

import json
from pathlib import Path

from rankscope.records.codec import from_json, to_json
from rankscope.records.report import ClusterReport
from rankscope.rundir.foreign import shown

__all__ = ["with_place"]


def with_place(report: ClusterReport, folder: Path, instead: str) -> ClusterReport:
    """Return the report with a folder's path replaced by another, or removed, wherever it occurs."""
    text, other = to_json(report), f"{instead}/" if instead else ""
    for place in {str(folder), str(folder.absolute()), str(folder.resolve()), shown(folder)}:
        quoted, put = (json.dumps(word, ensure_ascii=False)[1:-1] for word in (place, other))
        text = text.replace(f"{quoted}/", put).replace(quoted, put.rstrip("/") or ".")
    return from_json(ClusterReport, text)
