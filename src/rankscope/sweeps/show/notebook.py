"""The result of :func:`rankscope.read_sweep`: the record, as a DataFrame and with a display for notebooks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rankscope.records.record_view import RecordView
from rankscope.records.sweep import SweepResult, SweepRow
from rankscope.sweeps.show import html, markdown, terminal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Sweep"]


class Sweep(RecordView):
    """The table of a sweep. Every field of ``rankscope sweep --format json`` is an attribute: ``sweep.rows``,
    ``sweep.best.name``."""

    record: SweepResult

    def __repr__(self) -> str:
        return terminal.render(self.record)

    def _repr_html_(self) -> str:
        return html.body(self.record, styled=True)

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per setting, times in ms."""
        import pandas as pd

        names = [field.name for field in dataclasses.fields(SweepRow)]
        return pd.DataFrame([dataclasses.asdict(row) for row in self.record.rows], columns=names).set_index("name")

    def to_markdown(self) -> str:
        """Return Markdown for a pull request."""
        return markdown.render(self.record)
