"""Plots of a report, by Plotly: figures for a notebook, a dashboard or a file, in the colours of the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from rankscope.errors import AnalysisError
from rankscope.records.lanes import StepLanes
from rankscope.records.report import ClusterReport
from rankscope.records.rows import KernelRow
from rankscope.report.common import plain_text
from rankscope.report.common.breakdown import LEGEND, segments

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["COLOURS", "Plots"]

COLOURS = {
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
"""Colours, the same as on the page."""
ACCENT, DIM = "#b4400a", "#5b606b"
FEW = 16
"""Largest number of ranks whose steps are all drawn. With more, only named ranks and the range of the others are."""
GIB = 2**30
MOST_LETTERS = 60
MOST_DOTS = 30
ADDITION = 1 / 12
"""Operations per byte of an addition in 32 bits: two elements are read, and one is written."""
LANE_KINDS = {key: LEGEND[key][0] for key in ("compute", "fused", "copy", "waiting", "transfer")}
LANE_KINDS |= {"input": "Input", "host": "Host"}
"""Kind of a piece of a lane -> its label, in the order of the legend."""
_NAMED = 3
"""Ranks of the verdict whose lanes are drawn by default: of more one cannot see the others."""
Lanes = Callable[[int, Sequence[int]], StepLanes]
"""A step and ranks -> what they do in it."""
PATH_KINDS = {
    "compute": ("Compute", "compute"),
    "transfer": ("Transfer", "transfer"),
    "host": ("Host", "input"),
    "launch": ("Launch latencies and gaps", "idle"),
}
"""Kind of a piece of the critical path -> its label and colour."""


class Plots:
    """``report.plot``: each method returns a figure of Plotly, with ``show()``, ``write_html()`` and ``to_json()``.

    The numbers are those of ``report.table("ranks")`` and the other tables.
    """

    def __init__(self, record: ClusterReport, lanes: Lanes | None = None) -> None:
        self._record, self._lanes = record, lanes

    def __repr__(self) -> str:
        return f"figures of the report: {', '.join(f'.{name}()' for name in dir(self))}"

    def __dir__(self) -> list[str]:
        return ["breakdown", "efficiency", "gains", "map", "memory", "roofline", "step", "steps"]

    def map(self, value: str | None = None) -> Figure:
        """Plot a number of each rank and step as colours.

        Args:
            value: a column of ``report.table("steps")``: cost_ms, lateness_ms, duration_ms, compute_ms, idle_ms ...
                Default: the cost, by replay; lateness if no cost is known.

        Raises:
            AnalysisError: the report has no steps, or none with this number.
            ValueError: there is no such column.
        """
        rows = self._record.steps
        value = value or ("cost_ms" if any(row.cost_ms is not None for row in rows) else "lateness_ms")
        if rows and not isinstance(getattr(rows[0], value, ""), (int, float, type(None))):
            names = [field.name for field in dataclasses.fields(rows[0])]
            raise ValueError(f"{value!r} is no column of the steps; there are {', '.join(names)}")
        known = {(row.rank, _step(row)): getattr(row, value) for row in rows if getattr(row, value) is not None}
        _need(known, f"{value} of steps")
        ranks, steps = sorted({rank for rank, _ in known}), sorted({step for _, step in known})
        grid = [[known.get((rank, step)) for step in steps] for rank in ranks]
        signed = value == "lateness_ms"
        colours = {"colorscale": "RdBu_r", "zmid": 0.0} if signed else {"colorscale": "Blues"}
        figure = _figure(f"{value}, by rank and step", "step", "rank")
        names = [str(step[-1]) if len({s[:2] for s in steps}) == 1 else "/".join(map(str, step)) for step in steps]
        figure.add_heatmap(z=grid, x=names, y=[str(rank) for rank in ranks], colorbar={"title": "ms"}, **colours)
        figure.update_xaxes(type="category")
        figure.update_yaxes(type="category", autorange="reversed")
        return figure

    def breakdown(self) -> Figure:
        """Plot where the time of each rank goes, in per cent of its recorded window, as stacked bars."""
        idle = {row.rank: row for row in self._record.idle}
        bars = {row.rank: segments(row, idle.get(row.rank)) for row in self._record.ranks}
        bars = {rank: parts for rank, parts in bars.items() if parts}
        _need(bars, "times of ranks")
        figure = _figure("Where the time goes", "% of the recorded window", "rank")
        for key, (label, _) in LEGEND.items():
            part = {rank: sum(p.pct for p in parts if p.key == key) for rank, parts in bars.items()}
            if any(part.values()):
                names = [str(rank) for rank in part]
                figure.add_bar(x=list(part.values()), y=names, name=label, orientation="h", marker_color=COLOURS[key])
        figure.update_layout(barmode="stack")
        figure.update_yaxes(type="category", autorange="reversed")
        return figure

    def steps(self, ranks: Sequence[int] | None = None) -> Figure:
        """Plot how long each recorded step takes on each rank.

        Args:
            ranks: only these ranks. Default: all of up to 16 ranks; of more, those of the verdict and the range of all.
        """
        rows = self._record.steps
        _need(rows, "steps")
        every = sorted({row.rank for row in rows})
        shown = set(every if len(every) <= FEW else self._record.verdict.ranks) if ranks is None else set(ranks)
        keys = sorted({_step(row) for row in rows})
        of_rank = {rank: {_step(row): row.duration_ms for row in rows if row.rank == rank} for rank in shown}
        figure = _figure("Steps", "recorded step", "ms")
        if ranks is None and len(every) > FEW:
            for label, of in (("slowest rank", max), ("median rank", median), ("fastest rank", min)):
                line = [of([row.duration_ms for row in rows if _step(row) == key]) for key in keys]
                figure.add_scatter(x=list(range(len(keys))), y=line, name=label, line={"color": DIM, "dash": "dot"})
        for rank in sorted(shown & set(every)):
            colour = {"line": {"color": ACCENT}} if rank in self._record.verdict.ranks else {}
            own = [of_rank[rank].get(key) for key in keys]
            figure.add_scatter(x=list(range(len(keys))), y=own, name=f"rank {rank}", **colour)
        figure.update_xaxes(tickvals=list(range(len(keys))), ticktext=[str(key[-1]) for key in keys])
        figure.update_yaxes(rangemode="tozero")
        return figure

    def step(self, step: int | None = None, ranks: Sequence[int] | None = None) -> Figure:
        """Plot the critical path of one step, or what ranks do in a step.

        Without arguments it is the critical path of the median step, whose number is in the title, a line for each
        rank: the work that decides how long the step takes. With a step or ranks, each of these ranks has three lines,
        on one clock: its host, its computation, its communication with the waits for others. This reads the traces
        again, from their cache if there is one.

        Args:
            step: number of a recorded step. Default: that of the critical path.
            ranks: the ranks to be shown. Default: up to three that the verdict names, and another one.

        Raises:
            AnalysisError: the report has no critical path; or, with arguments, it was read from a file, or has no such
                step or rank.
        """
        if step is not None or ranks is not None:
            return self._step_of_ranks(step, ranks)
        path = self._record.critical_path
        pieces = path.pieces if path is not None else []
        _need(pieces, "critical path")
        assert path is not None
        which = "a step" if path.step is None else f"step {path.step}"
        figure = _figure(f"Critical path of {which}, {path.step_ms:.1f} ms", "ms from the begin of the step", "rank")
        for kind, (label, colour) in PATH_KINDS.items():
            own = [piece for piece in pieces if piece.kind == kind]
            if own:
                figure.add_bar(
                    x=[piece.duration_ms for piece in own],
                    base=[piece.start_ms for piece in own],
                    y=["all" if piece.rank is None else str(piece.rank) for piece in own],
                    name=label,
                    hovertext=[plain_text.one_line(piece.name, MOST_LETTERS) or label for piece in own],
                    orientation="h",
                    marker={"color": COLOURS[colour], "line": {"width": 0}},
                )
        figure.update_layout(barmode="overlay")
        figure.update_yaxes(type="category", autorange="reversed")
        return figure

    def _step_of_ranks(self, step: int | None, ranks: Sequence[int] | None) -> Figure:
        if self._lanes is None:
            raise AnalysisError("a report read from a file has no events to plot; use rankscope.analyze(traces)")
        path = self._record.critical_path
        recorded = sorted({row.step for row in self._record.steps})
        if step is None:
            _need(recorded, "steps")
            step = path.step if path is not None and path.step is not None else recorded[len(recorded) // 2]
        if ranks is None:
            named = self._record.verdict.ranks[:_NAMED]
            there = sorted({row.rank for row in self._record.steps} - set(named))
            ranks = [*named, *there[: 1 if named else 2]]
        found = self._lanes(step, list(ranks))
        figure = _figure(f"Step {found.step}, {found.step_ms:.1f} ms", "ms from the begin of the step", "")
        for key, label in LANE_KINDS.items():
            own = [(lane, piece) for lane in found.lanes for piece in lane.pieces if piece.kind == key]
            if own:
                figure.add_bar(
                    x=[piece.duration_ms for _, piece in own],
                    base=[piece.start_ms for _, piece in own],
                    y=[f"{lane.rank} {lane.track}" for lane, _ in own],
                    name=label,
                    hovertext=[plain_text.one_line(piece.name, MOST_LETTERS) or label for _, piece in own],
                    orientation="h",
                    marker={"color": COLOURS[key], "line": {"width": 0}},
                )
        figure.update_layout(barmode="overlay")
        figure.update_yaxes(
            type="category", autorange="reversed", categoryorder="array",
            categoryarray=[f"{lane.rank} {lane.track}" for lane in found.lanes],
        )  # fmt: skip
        return figure

    def roofline(self) -> Figure:
        """Plot kernels below what the device allows: operations per second over operations per byte, on logarithmic
        axes.

        Products stand where their operations and bytes put them, by the shapes of their operators. Of element-wise
        kernels only bytes are counted: as hollow marks they stand at one operation per 12 bytes, an addition in 32
        bits, and their distance to the roof is right wherever they stand. The area of a mark is the kernel's time.
        """
        known = self._record.efficiency
        rows = [row for row in self._record.kernels if row.gb_s and row.ms_per_step][:MOST_DOTS]
        _need(rows, "kernels whose bytes are known")
        figure = _figure("Roofline", "operations per byte", "TFLOP/s")
        counted = [row.tflops for row in rows]
        across = [1e3 * row.tflops / row.gb_s if row.tflops else ADDITION for row in rows if row.gb_s]
        longest = max(row.ms_per_step or 0.0 for row in rows)
        if known is not None and known.peak_tflops and known.peak_gb_s:
            ridge = 1e3 * known.peak_tflops / known.peak_gb_s
            ends = [min(ADDITION, *across) / 2, ridge, max(ridge, *across) * 2]
            roof = [min(known.peak_tflops, known.peak_gb_s * at / 1e3) for at in ends]
            figure.add_scatter(x=ends, y=roof, mode="lines", name=f"{known.device}, bf16", line={"color": DIM})
        figure.add_scatter(
            x=across,
            y=[row.tflops or (row.gb_s or 0.0) * ADDITION / 1e3 for row in rows],
            mode="markers",
            name="kernels",
            hovertext=[f"{_brief(row)}: {row.ms_per_step:.2f} ms a step, {row.gb_s:.0f} GB/s" for row in rows],
            marker={
                "size": [8 + 32 * ((row.ms_per_step or 0.0) / longest) ** 0.5 for row in rows],
                "symbol": ["circle" if rate else "circle-open" for rate in counted],
                "color": COLOURS["compute"],
                "opacity": 0.7,
            },
        )
        figure.update_xaxes(type="log")
        figure.update_yaxes(type="log")
        return figure

    def gains(self) -> Figure:
        """Plot what each recommended action saves of a step, ms, with its error or as a bound."""
        known = [action for action in self._record.actions if action.saves_ms is not None]
        _need(known, "actions with a gain")
        figure = _figure("What each change alone would save", "ms of a step", "")
        names = [
            f"{'at most: ' if action.kind == 'bound' else ''}{plain_text.one_line(action.text, MOST_LETTERS)}"
            for action in known
        ]
        figure.add_bar(
            x=[action.saves_ms or 0.0 for action in known],
            y=names,
            error_x={"array": [action.error_ms or 0.0 for action in known]},
            orientation="h",
            marker={
                "color": COLOURS["compute"],
                "pattern": {"shape": ["/" if a.kind == "bound" else "" for a in known]},
            },
        )
        figure.update_yaxes(autorange="reversed")
        return figure

    def efficiency(self) -> Figure:
        """Plot the device time of each kind of work, ms of a step, and how close to the device's peak it runs."""
        known = self._record.efficiency
        groups = known.groups if known is not None else []
        _need(groups, "efficiency of a device")
        figure = _figure("Device time by kind of work", "ms of a step", "")
        labels = [
            f"{g.tflops:.0f} TFLOP/s" if g.tflops else f"{g.gb_s:.0f} GB/s" if g.gb_s else "not counted" for g in groups
        ]
        figure.add_bar(
            x=[group.ms_per_step for group in groups],
            y=[group.name for group in groups],
            orientation="h",
            text=[f"{g.peak_pct:.0f} % of peak" if g.peak_pct else "" for g in groups],
            hovertext=labels,
            marker={"color": [g.peak_pct or 0.0 for g in groups], "colorscale": "Blues", "cmin": 0, "cmax": 100},
        )
        figure.update_yaxes(autorange="reversed")
        return figure

    def memory(self) -> Figure:
        """Plot the most device memory that each rank held, GiB: by tensors, by PyTorch's allocator, and its size."""
        rows = {row.rank: row for row in sorted(self._record.memory, key=lambda r: (r.rank, r.peak_reserved_bytes))}
        _need(rows, "device memory")
        names = [str(rank) for rank in rows]
        figure = _figure("Device memory at the peak", "rank", "GiB")
        for label, field, colour in (
            ("tensors", "peak_allocated_bytes", COLOURS["compute"]),
            ("reserved", "peak_reserved_bytes", COLOURS["copy"]),
            ("the device has", "device_bytes", COLOURS["idle"]),
        ):
            held = [getattr(row, field) for row in rows.values()]
            if any(held):
                figure.add_bar(
                    x=names, y=[size / GIB if size else None for size in held], name=label, marker_color=colour
                )
        figure.update_xaxes(type="category")
        return figure


def _step(row: Any) -> tuple[int, int, int]:
    return row.attempt, row.window, row.step


def _brief(row: KernelRow) -> str:
    return row.operator or plain_text.short_name(row.name)


def _need(found: object, what: str) -> None:
    if not found:
        raise AnalysisError(f"this report has no {what} to plot")


def _figure(title: str, x: str, y: str) -> Figure:
    from plotly.graph_objects import Figure

    layout = {"template": "plotly_white", "title": title, "xaxis_title": x, "yaxis_title": y}
    return Figure(layout=layout)
