"""Traces of a job as tables: the result of :func:`rankscope.load_traces`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.clocks.waits import element_bytes
from rankscope.analysis.hta.adapter import trace_analysis
from rankscope.analysis.windows.all_windows import analyse_windows, usable
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.errors import AnalysisError
from rankscope.listing import counted, some_ranks
from rankscope.records.manifest import RunManifest
from rankscope.timeline.merge import merge
from rankscope.timeline.prepare import on_axis
from rankscope.timeline.selection import Selection
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.load import LoadResult
from rankscope.trace.files.not_used import why_unused
from rankscope.trace.files.parquet import events_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Traces"]

_KEY = ("attempt", "window", "rank")


class Traces:
    """What :func:`rankscope.load_traces` has read, as tables; ``len()`` is the number of traces.

    ``traces``, ``sources``, ``unassigned`` and ``notes`` are what was read and why a file was not. Iterating yields a
    ``Traces`` of each rank, in order; ``traces.rank(3)`` is one of them. A folder with traces of several recordings has
    one trace of each rank and window.
    """

    def __init__(self, loaded: LoadResult, manifest: RunManifest | None = None) -> None:
        self.loaded = loaded
        """What was read, as ``rankscope.analyze`` takes it."""
        self._manifest = manifest
        self._whole: Traces = self

    # ------------------------------------------------------------ what there is

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "loaded":  # pickle and copy ask for these first
            raise AttributeError(name)
        return getattr(self.loaded, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), "traces", "sources", "unassigned", "snapshots", "step_logs", "notes"})

    @property
    def ranks(self) -> list[int]:
        """The ranks that left a trace, in order."""
        return sorted({trace.rank for trace in self.loaded.traces if trace.rank is not None})

    def __len__(self) -> int:
        return len(self.loaded.traces)

    def __iter__(self) -> Iterator[Traces]:
        return (self.rank(rank) for rank in self.ranks)

    def rank(self, rank: int) -> Traces:
        """Return the traces of one rank. Its clock is still aligned with those of all others.

        Raises:
            KeyError: no trace of this rank was read; the message names those that were.
        """
        own = [trace for trace in self.loaded.traces if trace.rank == rank]
        if not own:
            raise KeyError(f"no trace of rank {rank}; there are those of rank {some_ranks(self.ranks) or 'none'}")
        found = Traces(LoadResult(traces=own, sources=[s for s in self.loaded.sources if s.rank == rank]))
        found._manifest, found._whole = self._manifest, self._whole
        return found

    def __repr__(self) -> str:
        traces, others = self.loaded.traces, [s for s in self.loaded.sources if s.status != "used"]
        why = f"; {counted(len(others), 'other file')}, see .sources" if others else ""
        if not traces:
            first = f": {others[0].path}: {others[0].reason}" if others else ""
            return f"no trace{first}{why if len(others) > 1 else ''}"
        windows = len({(trace.attempt, trace.window) for trace in traces})
        events = sum(len(trace.events) for trace in traces)
        of = f"{counted(len(self.ranks), 'rank')} in {counted(windows, 'window')}"
        return f"{counted(len(traces), 'trace')} of {of}, {events:,} events{why}"

    # ------------------------------------------------------------ tables

    @cached_property
    def events(self) -> pa.Table:
        """All events, with ``attempt``, ``window``, ``rank`` and the columns of docs/parquet.md. ``start`` is ns on
        each rank's own clock.

        Raises:
            AnalysisError: no trace was read.
        """
        _need(self.loaded)
        return events_table(self.loaded.traces)

    def aligned(self) -> pa.Table:
        """Return :attr:`events` with ``start`` on the common clock of the ranks, ns, so that ranks can be compared.

        Events of windows whose ranks could not be compared are left out; :attr:`meta` has the error of each clock.

        Raises:
            AnalysisError: no trace was read, or no window can be compared.
        """
        import pyarrow as pa

        moved, starts = [], []
        clocks = self._clocks
        for trace in self.loaded.traces:
            if (found := clocks.get((trace.attempt, trace.window, trace.rank))) is not None:
                moved.append(trace)
                starts.append(on_axis(*found, trace.events.start))
        if not moved:
            raise AnalysisError("no window of these traces can be compared, so that they have no common clock")
        table = events_table(moved)
        return table.set_column(table.column_names.index("start"), "start", pa.array(np.concatenate(starts)))

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Recorded steps: ``attempt``, ``window``, ``rank``, ``step``, and ``start`` and ``duration`` of the host's
        step, ns on the rank's own clock."""
        return _frame(
            self.loaded.traces,
            {
                "step": lambda trace: trace.steps.number,
                "start": lambda trace: trace.steps.start,
                "duration": lambda trace: trace.steps.duration,
            },
        )

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Matched collectives, one row for each call and rank that took part in it.

        ``call`` is the same number on all its ranks, within a window. ``kind``, ``group`` (its name), ``group_size``,
        ``bytes`` (larger of input and output, where the trace states it), ``step`` (of the launch), ``start`` (arrival)
        and ``end`` on the common clock, ``wait`` for the last rank, ``transfer`` from there on, ns, and ``last_rank``,
        which arrived last. Empty if no window can be compared.
        """
        import pandas as pd

        rows: list[pd.DataFrame] = []
        for window, column, trace in self._compared():
            matched, waits = window.matched, window.waits
            members = matched.of(column)
            call, row = matched.call[members], matched.row[members]
            groups = [matched.channels[int(c)] for c in matched.channel[call]]
            step, events = waits.step[members], trace.collectives.event[row]
            begin = trace.events.start[events]
            rows.append(
                pd.DataFrame(
                    {
                        **{name: getattr(trace, name) for name in _KEY},
                        "call": call,
                        "kind": [matched.kind[int(c)] for c in call],
                        "group": [group.name for group in groups],
                        "group_size": [len(group.ranks) for group in groups],
                        "bytes": _sizes(trace, row),
                        "step": np.where(step >= 0, trace.steps.number[step.clip(0)], -1) if len(trace.steps) else -1,
                        "start": on_axis(window.clocks, column, begin),
                        "end": on_axis(window.clocks, column, begin + trace.events.duration[events]),
                        "wait": np.round(waits.wait[members]).astype(np.int64),
                        "transfer": np.round(waits.transfer[members]).astype(np.int64),
                        "last_rank": [window.views[int(waits.last[int(c)])].rank for c in call],
                    }
                )
            )
        names = [*_KEY, "call", "kind", "group", "group_size", "bytes", "step", "start", "end", "wait", "transfer"]
        return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=[*names, "last_rank"])

    @cached_property
    def meta(self) -> pd.DataFrame:
        """One row a trace: its file, host, device, backend, world size, numbers of events and steps, and
        ``offset_ns``: its clock plus this is the common clock at the begin of the window; ``error_ns``, within which
        95 % of the ends of collectives agree. Null where unknown."""
        import pandas as pd

        rows, clocks = [], self._clocks
        for trace in self.loaded.traces:
            about, found = trace.meta, clocks.get((trace.attempt, trace.window, trace.rank))
            rows.append(
                {
                    **{name: getattr(trace, name) for name in _KEY},
                    "source": trace.source,
                    "host": about.host,
                    "device": about.device,
                    "backend": about.backend,
                    "world_size": about.world_size,
                    "events": len(trace.events),
                    "steps": len(trace.steps),
                    "offset_ns": None if found is None else round(float(found[0].offset[found[1]])),
                    "error_ns": None if found is None else found[0].error_ns,
                }
            )
        return pd.DataFrame(rows)

    # ------------------------------------------------------------ for other tools

    def to_hta(self, attempt: int = 0, window: int = 0) -> Any:
        """Return HolisticTraceAnalysis' ``TraceAnalysis`` over the traces of one window, without its own parser; see
        docs/hta.md.

        Raises:
            ModuleNotFoundError: HolisticTraceAnalysis is not installed.
            KeyError: there is no such window.
        """
        own = [t for t in usable(self.loaded.traces) if (t.attempt, t.window) == (attempt, window)]
        if not own:
            raise KeyError(f"no trace of attempt {attempt}, window {window}")
        return trace_analysis(own)

    def to_perfetto(self, path: Path | str, *, steps: tuple[int, int] | None = None, replace: bool = False) -> Path:
        """Write all these ranks on one clock for the Perfetto UI, as ``rankscope merge`` does, and return the path.

        Args:
            path: usually ends with ``.json.gz``.
            steps: only from this step to that one, both included.
            replace: whether an existing file may be replaced.

        Raises:
            AnalysisError: no trace is usable.
            ConfigError: none of the steps was recorded.
            RunDirError: the file exists, or cannot be written.
        """
        ranks = None if self._whole is self else frozenset(self.ranks)
        merge(self._whole.loaded, Path(path), Selection(ranks=ranks, steps=steps), self._manifest, replace=replace)
        return Path(path)

    # ------------------------------------------------------------ the comparison behind the tables

    @cached_property
    def _windows(self) -> list[WindowResult]:
        return analyse_windows(usable(self.loaded.traces), self._manifest, lambda _where, _error: None)

    @property
    def _clocks(self) -> dict[tuple[int, int, int | None], tuple[Clocks, int]]:
        return {(w.attempt, w.window, w.views[column].rank): (w.clocks, column) for w, column, _ in self._compared()}

    def _compared(self) -> Iterator[tuple[WindowResult, int, RankTrace]]:
        """Yield window, column and trace of each of these ranks in windows that could be compared. The trace is as the
        analysis has repaired it."""
        wanted = set(self.ranks)
        for window in self._whole._windows:  # noqa: SLF001 - of this class
            for column, view in enumerate(window.views):
                if view.rank in wanted:
                    yield window, column, view.trace


def _need(loaded: LoadResult) -> None:
    if not loaded.traces:
        reasons = why_unused(loaded.sources)
        raise AnalysisError("none of the given files can be used" + (f" ({reasons})" if reasons else ""))


def _sizes(trace: RankTrace, rows: NDArray[np.int32]) -> list[int | None]:
    calls = trace.collectives
    units = [element_bytes(calls.dtype[row]) for row in rows.tolist()]
    elements = np.maximum(calls.in_elements[rows], calls.out_elements[rows]).tolist()
    return [unit * count if unit and count >= 0 else None for unit, count in zip(units, elements, strict=True)]


def _frame(traces: Sequence[RankTrace], columns: Mapping[str, Callable[[RankTrace], Any]]) -> pd.DataFrame:
    import pandas as pd

    frames = [
        pd.DataFrame(
            {**{name: getattr(trace, name) for name in _KEY}, **{name: of(trace) for name, of in columns.items()}}
        )
        for trace in traces
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*_KEY, *columns])
