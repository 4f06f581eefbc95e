"""A report as notebooks and scripts want it: tables as DataFrames, and something to look at."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rankscope.errors import AnalysisError
from rankscope.records.record_view import RecordView
from rankscope.records.report import ClusterReport
from rankscope.report import WRITERS, write_report
from rankscope.report.common import wording as words
from rankscope.report.common.rank_rows import RankRow, rank_rows
from rankscope.report.common.rounding import tidy

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLES", "Report", "WhatIf"]

TABLES = (
    *("ranks", "idle", "steps", "groups", "modules", "kernels", "queues", "findings", "actions", "health", "memory"),
    "sources",
)
"""Tables of a report: fields of :class:`ClusterReport` that hold one record a row."""
_BY_RANK = ("ranks", "idle")
_COLOURS = {
    "compute": "#24508f",
    "fused": "#5a6aa0",
    "comm": "#b07aa1",
    "waiting": "#ffb000",
    "transfer": "#b07aa1",
    "copy": "#2a9d6f",
    "idle": "#d0d3d8",
    "input": "#c2410c",
    "host": "#d0d3d8",
}
"""As in the page."""


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """What the recorded steps would take if something were different, by replay."""

    saves_ms: float
    """Per step, mean; below 0 where it would take longer."""
    step_then_ms: float | None
    """The report's step less that; None where its step is not known."""
    by_step_ms: list[float]
    """What each recorded step would be shorter by."""


Ask = Callable[[Sequence[int], float, float, Mapping[str, float]], list[float]]
"""Replays: ranks, network, host and operators, as of :class:`WhatIfs` -> ms that each recorded step is shorter by."""


class WhatIfs(dict[str, float]):
    """``report.what_if``: assumption -> ms that each step would gain, as in report.json. It can be called, too."""

    def __init__(self, record: ClusterReport, ask: Ask | None) -> None:
        super().__init__(record.what_if)
        self._record, self._answer = record, ask

    def __call__(
        self,
        rank: int | Sequence[int] | None = None,
        *,
        network: float = 1.0,
        host: float = 1.0,
        scale: Mapping[str, float] | None = None,
    ) -> WhatIf:
        """Replay the recorded steps with other work, all changes together.

        The traces are read again, from their cache where there is one, when the first question is asked.

        Args:
            rank: a rank, or some, whose work is brought to the level of their peers.
            network: how many times as fast transfers are; ``math.inf`` for transfers that take no time.
            host: the same of the hosts' own work: Python, operators, launches.
            scale: operator or kernel -> what its time on the device is multiplied by, ``{"aten::mm": 0.5}``.

        Raises:
            AnalysisError: the report was read from a file, or no window of it can be replayed.
            ValueError: a factor that is none.
        """
        if self._answer is None:
            raise AnalysisError("a report that was read from a file cannot be replayed; use rankscope.analyze(traces)")
        factors = dict(scale or {})
        if not (network > 0 and host > 0 and all(0 <= factor < math.inf for factor in factors.values())):
            raise ValueError("network and host are above 0, and factors of operators are 0 or more")
        ranks = [rank] if isinstance(rank, int) else list(rank or ())
        unknown = sorted(set(ranks) - {row.rank for row in self._record.ranks})
        if unknown:
            raise ValueError(f"there is no rank {', '.join(map(str, unknown))} in this report")
        saved = self._answer(ranks, network, host, factors)
        mean, step = sum(saved) / len(saved), self._record.verdict.step_ms
        return WhatIf(mean, None if step is None else step - mean, saved)


class Report(RecordView):
    """What :func:`rankscope.analyze` and :func:`rankscope.read_report` return.

    Every field of ``report.json`` is an attribute of the same name: ``report.verdict.sentence``,
    ``report.ranks[0].host``, ``report.findings``. docs/metrics.md defines the numbers.
    """

    record: ClusterReport

    def __init__(self, record: ClusterReport, ask: Ask | None = None) -> None:
        super().__init__(record)
        self._ask = ask

    def __getstate__(self) -> dict[str, Any]:
        return {"record": self.record, "_ask": None}

    @property
    def what_if(self) -> WhatIfs:
        """What each step would gain under the assumptions of report.json, and an answer to any other when called."""
        return WhatIfs(self.record, self._ask)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(field.name for field in dataclasses.fields(self.record))]

    def table(self, name: str) -> pd.DataFrame:
        """One of :data:`TABLES` as a DataFrame, one row a record.

        ``ranks`` and ``idle`` are indexed by rank. What a record keeps by name is a column each: ``step_ms_median``.

        Raises:
            KeyError: there is no such table; the message names those there are.
        """
        import pandas as pd

        if name not in TABLES:
            raise KeyError(f"{name!r} is no table of a report; there are {', '.join(TABLES)}")
        rows = [_flat(dataclasses.asdict(row)) for row in getattr(self.record, name)]
        (record,) = typing.get_args(typing.get_type_hints(ClusterReport)[name])
        frame = (
            pd.DataFrame(rows) if rows else pd.DataFrame(columns=[field.name for field in dataclasses.fields(record)])
        )
        return frame.set_index("rank") if name in _BY_RANK else frame

    def save(self, folder: Path | str) -> dict[str, Path]:
        """Write report.json, report.md and report.html into a folder, and return where each is.

        Raises:
            OSError: the folder cannot be made or written.
        """
        return write_report(self.record, Path(folder))

    def to_dict(self) -> dict[str, Any]:
        """report.json as Python objects."""
        plain: dict[str, Any] = json.loads(WRITERS["json"](self.record))
        return plain

    def to_markdown(self) -> str:
        """For a pull request or a chat: short enough for a comment."""
        return WRITERS["markdown"](self.record)

    def to_html(self) -> str:
        """The whole page."""
        return WRITERS["html"](self.record)

    def scalars(self) -> dict[str, float]:
        """Numbers for an experiment tracker, each under a name that begins with ``rankscope/``; unknown ones are left
        out. Shares are means over the ranks."""
        verdict = self.record.verdict
        usable = [rank for rank in self.record.ranks if rank.compute_pct is not None]
        found = {"step_ms": verdict.step_ms, "cost_ms": verdict.cost_ms_per_step, "ranks": float(len(usable))}
        for name in ("compute_pct", "exposed_comm_pct", "overlap_pct", "idle_pct"):
            known = [value for rank in usable if (value := getattr(rank, name)) is not None]
            found[name] = sum(known) / len(known) if known else None
        return {f"rankscope/{name}": value for name, value in found.items() if value is not None}

    def __repr__(self) -> str:
        verdict = self.record.verdict
        lines = [f"Verdict  {words.sentence(verdict)}"]
        lines += [f"Why      {line}" for line in verdict.why[:1]] + [f"Next     {line}" for line in verdict.next[:1]]
        return "\n".join(lines)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """For Jupyter: text, Markdown, and HTML without script or request."""
        return {"text/plain": repr(self), "text/markdown": self.to_markdown(), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        """The verdict and the ranks, in one ``<div>`` that takes the colours of its page."""
        report = tidy(self.record)
        verdict = report.verdict
        parts = [Markup("<p><strong>{}</strong></p>").format(words.sentence(verdict))]
        for title, items in (("Why", verdict.why), ("Next", verdict.next)):
            listed = Markup("").join(Markup("<li>{}</li>").format(item) for item in items[:3])
            if listed:
                parts.append(
                    Markup("<p style='margin:.6em 0 0'>{}</p><ul style='margin:0'>{}</ul>").format(title, listed)
                )
        rows = Markup("").join(map(_html_row, rank_rows(report, 8)))
        head = Markup("<tr><th>rank</th><th>costs ms</th><th>waits ms</th><th>where a step goes</th></tr>")
        parts.append(Markup("<table style='margin-top:.8em'>{}{}</table>").format(head, rows))
        return Markup("<div>{}</div>").format(Markup("").join(parts))


def _html_row(row: RankRow) -> Markup:
    bar = Markup("").join(
        Markup(
            "<span title='{} {:.0f} %' style='display:inline-block;height:1em;width:{:.2f}%;background:{}'></span>"
        ).format(part.label, part.pct, part.pct, _COLOURS[part.key])
        for part in row.parts
    )
    return Markup(
        "<tr><td>{}{}</td><td>{}</td><td>{}</td><td style='width:24em;text-align:left;white-space:nowrap'>{}</td></tr>"
    ).format(
        "▲ " if row.named else "", row.label, words.ms(row.cost_ms, ""), words.ms(row.wait_ms, ""), bar or row.note
    )


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """What is kept by name as a column each."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            found.update({f"{name}_{key}": item for key, item in value.items()})
        else:
            found[name] = value
    return found
