"""Remove the location of files from a report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rankscope.records.codec import from_json, to_json
from rankscope.records.report import ClusterReport
from rankscope.rundir.foreign import shown

__all__ = ["with_place"]


def with_place(report: ClusterReport, folder: Path, instead: str) -> ClusterReport:
    """Return the report with a folder's path replaced by another, or removed, wherever it occurs in a text."""
    path, below = _paths_of(folder), f"{instead}/" if instead else ""

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return path.sub(lambda match: below if match[0].endswith("/") else instead or ".", value)
        if isinstance(value, list):
            return [replaced(item) for item in value]
        if isinstance(value, dict):  # its keys are names of fields, ranks and kernels, never paths
            return {key: replaced(item) for key, item in value.items()}
        return value

    return from_json(ClusterReport, json.dumps(replaced(json.loads(to_json(report)))))


def _paths_of(folder: Path) -> re.Pattern[str]:
    """Match the folder's path as it can occur in a text, together with the slash behind it.

    A relative path can be an ordinary word (``copy``) or a kind of verdict, so it counts only before a slash.
    """
    written = {str(folder), str(folder.absolute()), str(folder.resolve()), shown(folder)}
    absolute = _any_of(path for path in written if path.startswith("/"))
    relative = _any_of(path for path in written if not path.startswith("/"))
    return re.compile(rf"(?<![\w./-])(?:{absolute}(?:/|(?![\w-]|\.\w))|{relative}/)")


def _any_of(texts: Iterable[str]) -> str:
    """Return a pattern that matches any of the texts, the longest first, and nothing if there is none."""
    return f"(?:{'|'.join(re.escape(text) for text in sorted(texts, key=len, reverse=True)) or '(?!)'})"
