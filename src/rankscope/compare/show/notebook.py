"""The result of :func:`rankscope.diff`: the record, as DataFrames and with a display for notebooks."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from rankscope.compare.show import html, markdown, terminal
from rankscope.compare.show.json import render
from rankscope.records.diff import DiffRow, RunDiff
from rankscope.records.record_view import RecordView

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Diff"]


class Diff(RecordView):
    """Two runs side by side. Every field of ``rankscope diff --format json`` is an attribute: ``diff.verdict``,
    ``diff.sentence``, ``diff.step.change``, ``diff.parts``."""

    record: RunDiff

    def __repr__(self) -> str:
        return terminal.render([self.record])

    def _repr_html_(self) -> str:
        return html.body([self.record])

    @property
    def table(self) -> pd.DataFrame:
        """Return all that was compared, one row per quantity; ``told`` marks changes beyond their noise."""
        return _frame(self.record.rows)

    @property
    def operators(self) -> pd.DataFrame:
        """Return the rows of compute only, by operator and shapes."""
        return _frame([row for row in self.record.rows if row.kind == "kernel"])

    def to_dict(self) -> dict[str, Any]:
        """Return what ``rankscope diff --format json`` prints."""
        plain: dict[str, Any] = json.loads(render([self.record]))
        return plain

    def to_markdown(self) -> str:
        """Return Markdown for a pull request."""
        return markdown.render([self.record])


def _frame(rows: list[DiffRow]) -> pd.DataFrame:
    import pandas as pd

    names = [field.name for field in dataclasses.fields(DiffRow)]
    return pd.DataFrame([dataclasses.asdict(row) for row in rows], columns=names)
