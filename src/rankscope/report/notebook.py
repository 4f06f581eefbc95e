"""A report for notebooks and scripts: tables as DataFrames, and its display."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rankscope.errors import AnalysisError
from rankscope.records.record_view import RecordView
from rankscope.records.report import ClusterReport
from rankscope.report import FORMATS, WRITERS, write_report
from rankscope.report.common import wording as words
from rankscope.report.common.estimate import Estimate
from rankscope.report.common.rank_rows import RankRow, rank_rows
from rankscope.report.common.rounding import tidy
from rankscope.report.formats import markdown
from rankscope.report.plots import COLOURS, Lanes, Plots

if TYPE_CHECKING:
    import pandas as pd

    _Fields = ClusterReport  # so that editors and type checkers know the attributes
else:
    _Fields = object

__all__ = ["TABLES", "Report", "WhatIf"]

TABLES = (
    *("ranks", "idle", "steps", "groups", "modules", "kernels", "queues", "findings", "actions", "health", "memory"),
    *("sources", "regions", "marks"),
)
"""Tables of a report: fields of :class:`ClusterReport` that hold one record per row."""
_BY_RANK = ("ranks", "idle")


@dataclasses.dataclass(frozen=True, repr=False)
class WhatIf:
    """Duration of the recorded steps under other assumptions, by replay."""

    saves_ms: float
    """Gain per step, mean; negative if the step would take longer."""
    step_then_ms: float | None
    """The report's step minus the gain; None if its step is unknown."""
    by_step_ms: list[float]
    """Gain of each recorded step."""

    def __repr__(self) -> str:
        then = "" if self.step_then_ms is None else f", which then takes {words.ms(self.step_then_ms)}"
        return f"saves {self.saves} of a step{then}"

    @property
    def saves(self) -> Estimate:
        """The gain with twice its standard error, by the scatter of the steps; the error of the replay itself is in the
        report's section on its reliability."""
        count = len(self.by_step_ms)
        error = 2 * statistics.stdev(self.by_step_ms) / math.sqrt(count) if count > 1 else None
        return Estimate(self.saves_ms, error)


Ask = Callable[[Sequence[int], float, float, Mapping[str, float]], list[float]]
"""Replays: ranks, network, host and operators, as of :class:`WhatIfs` -> ms that each recorded step is shorter by."""


class WhatIfs(dict[str, float]):
    """``report.what_if``: assumption -> gain of each step in ms, as in report.json. It can also be called."""

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

        The first call reads the traces again, from their cache if there is one.

        Args:
            rank: a rank, or several, whose work is reduced to the level of their peers.
            network: factor by which transfers are faster; ``math.inf`` for transfers that take no time.
            host: the same for the hosts' own work: Python, operators, launches.
            scale: operator or kernel -> factor for its time on the device, ``{"aten::mm": 0.5}``.

        Raises:
            AnalysisError: the report was read from a file, or no window of it can be replayed.
            ValueError: a factor is not valid.
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


class HTML(str):
    """HTML that a notebook displays."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


class Report(RecordView, _Fields):
    """The result of :func:`rankscope.analyze` and :func:`rankscope.read_report`.

    Every field of ``report.json`` is an attribute of the same name: ``report.verdict.sentence``,
    ``report.ranks[0].host``, ``report.findings``. docs/metrics.md defines the numbers.
    """

    record: ClusterReport

    def __init__(self, record: ClusterReport, ask: Ask | None = None, lanes: Lanes | None = None) -> None:
        super().__init__(record)
        self._ask, self._lanes = ask, lanes

    def __getstate__(self) -> dict[str, Any]:
        return {"record": self.record, "_ask": None, "_lanes": None}

    @property
    def what_if(self) -> WhatIfs:  # type: ignore[override]  # it is one, and can be called
        """Gain of each step under the assumptions of report.json; to be called with other assumptions."""
        return WhatIfs(self.record, self._ask)

    @property
    def saves(self) -> Estimate | None:
        """What the job's step would shrink by without the verdict's cause, ms; None if no cost is stated."""
        verdict = self.record.verdict
        cost = verdict.cost_ms_per_step
        return None if cost is None else Estimate(cost, verdict.cost_error_ms)

    @property
    def plot(self) -> Plots:
        """Figures of Plotly: ``report.plot.breakdown()``, ``.steps()``, ``.map()``, ``.gains()``, ``.efficiency()``,
        ``.roofline()``, ``.step()``, ``.memory()``."""
        return Plots(self.record, self._lanes)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(field.name for field in dataclasses.fields(self.record))]

    def table(self, name: str) -> pd.DataFrame:
        """Return one of :data:`TABLES` as a DataFrame, one row per record.

        ``ranks`` and ``idle`` are indexed by rank. A mapping in a record becomes one column per key:
        ``step_ms_median``.

        Raises:
            KeyError: there is no such table; the message lists the existing ones.
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

    def save(self, folder: Path | str, formats: Collection[str] = FORMATS) -> dict[str, Path]:
        """Write report.json, report.md and report.html into a folder, and return the path of each.

        Args:
            folder: is created if it does not exist.
            formats: only these of ``json``, ``markdown`` and ``html``.

        Raises:
            OSError: the folder cannot be created or written.
            ValueError: there is no such format.
        """
        if unknown := sorted(set(formats) - set(FORMATS)):
            raise ValueError(f"{unknown[0]!r} is no format of a report; there are json, markdown and html")
        return write_report(self.record, Path(folder), formats)

    def show(self, height: int = 900) -> HTML:
        """Return the whole page as a frame for Jupyter, ``height`` pixels high. It runs the page's own script, and
        cannot reach the notebook."""
        frame = Markup(
            "<iframe srcdoc='{}' sandbox='allow-scripts' title='rankscope report' "
            "style='width:100%;height:{}px;border:0'></iframe>"
        )
        return HTML(frame.format(self.to_html(), height))

    def to_dict(self) -> dict[str, Any]:
        """Return report.json as Python objects."""
        plain: dict[str, Any] = json.loads(WRITERS["json"](self.record))
        return plain

    def to_markdown(self, limit: int = markdown.MAX_CHARACTERS) -> str:
        """Return Markdown for a pull request or a chat.

        Args:
            limit: the most characters. The verdict comes first, then the ranks and findings that fit; a note says that
                the rest is missing. By default as many as a comment on GitHub may have.
        """
        return markdown.render(self.record, limit)

    def to_html(self) -> str:
        """Return the whole page."""
        return WRITERS["html"](self.record)

    def scalars(self) -> dict[str, float]:
        """Return numbers for an experiment tracker, with names that begin with ``rankscope/``; unknown ones are left
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
        """Return text, Markdown, and HTML without script or requests, for Jupyter."""
        return {"text/plain": repr(self), "text/markdown": self.to_markdown(4000), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        """Return the verdict and the ranks, in one ``<div>`` that uses the colours of its page."""
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
        ).format(part.label, part.pct, part.pct, COLOURS[part.key])
        for part in row.parts
    )
    return Markup(
        "<tr><td>{}{}</td><td>{}</td><td>{}</td><td style='width:24em;text-align:left;white-space:nowrap'>{}</td></tr>"
    ).format(
        "▲ " if row.named else "", row.label, words.ms(row.cost_ms, ""), words.ms(row.wait_ms, ""), bar or row.note
    )


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Convert mappings in a row to one column per key."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            found.update({f"{name}_{key}": item for key, item in value.items()})
        else:
            found[name] = value
    return found
