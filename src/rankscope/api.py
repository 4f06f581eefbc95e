"""The public Python API. It is loaded when one of its functions is first used, as ``rankscope.load_traces``.

These functions, :func:`rankscope.step`, the command line, ``report.json``, ``run.json`` and the Parquet columns are
public (docs/api.md). Every other module may change with any release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rankscope.analysis import pipeline
from rankscope.analysis.evidence.questions import replayable, saved_ms
from rankscope.analysis.part import StepRange, only_part
from rankscope.analysis.windows.all_windows import analyse_windows, usable
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.compare.compare import compare
from rankscope.compare.gate import Failure, decide, parse
from rankscope.compare.show.notebook import Diff
from rankscope.compare.sides.side import Side
from rankscope.compare.sources import open_side
from rankscope.errors import AnalysisError
from rankscope.records.lanes import StepLanes
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport
from rankscope.report import read
from rankscope.report.common.estimate import Estimate
from rankscope.report.notebook import Report
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.result import result_of
from rankscope.sweeps.show.notebook import Sweep
from rankscope.timeline.lanes import step_lanes
from rankscope.trace.files import load as files
from rankscope.trace.files.load import LoadResult, Progress
from rankscope.traces import Traces

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Diff",
    "Estimate",
    "Failure",
    "LoadResult",
    "Report",
    "RunManifest",
    "Sweep",
    "Traces",
    "analyze",
    "check",
    "diff",
    "load",
    "load_traces",
    "read_manifest",
    "read_report",
    "read_sweep",
]


def load_traces(
    paths: Path | str | Sequence[Path | str],
    *,
    ranks: Mapping[Path | str, int] | None = None,
    workers: int | None = None,
    cache: bool | Path = True,
    progress: Progress | None = None,
) -> Traces:
    """Find and read the traces of a job.

    No error is raised for a file or path that cannot be used; the result lists it with the reason in ``sources``.

    Args:
        paths: a run directory, a folder of Kineto traces or a trace file, or several.
        ranks: ranks of files whose content does not state it.
        workers: number of processes that read, including this one. None chooses by size and number of CPUs.
        cache: whether the columns of each trace are stored as Parquet: next to a trace of a run directory, for other
            traces in the user's cache folder, or in a folder given here. False neither reads nor writes them.
        progress: called with bytes read, bytes in total, and the file just read; nothing is printed.

    Raises:
        rankscope.errors.ConfigError: ``ranks`` names a file that is not one of the traces.
    """
    given = {Path(path): rank for path, rank in (ranks or {}).items()}
    places = [Path(path) for path in _listed(paths)]
    loaded = files.load_traces(places, ranks=given, workers=workers, cache=cache, progress=progress)
    return Traces(loaded, _manifest_of(places))


def _manifest_of(places: Sequence[Path]) -> RunManifest | None:
    if len(places) == 1 and RunDir(places[0]).manifest.is_file():
        return read_manifest(places[0])
    return None


def analyze(
    source: Traces | LoadResult | Path | str | Sequence[Path | str],
    manifest: RunManifest | None = None,
    *,
    ranks: Mapping[Path | str, int] | None = None,
    steps: StepRange | None = None,
    window: int | tuple[int, int] | None = None,
    hta: bool | Literal["all"] = True,
    workers: int | None = None,
    cache: bool | Path = True,
    progress: Progress | None = None,
) -> Report:
    """Compare the ranks of a job and diagnose it.

    Args:
        source: a run directory, a folder, trace files, or the result of :func:`load_traces`.
        manifest: the result of :func:`read_manifest`, with missing ranks and host clocks. It is read automatically if
            ``source`` is one run directory.
        ranks: ranks of files whose content does not state it.
        steps: only these steps, by number: ``range(13, 16)``, ``slice(13, None)``, or ``(13, 15)`` with the first and
            the last one. Take four or more: lateness from before the first of them counts as its own. What is measured
            without a trace (step logs, health) remains that of the whole run.
        window: only this window of several; in a job with several attempts (attempt, window).
        hta: whether the report includes the numbers of HolisticTraceAnalysis. Above 64 ranks they are computed for the
            slow ranks and one other, unless it is ``all``.
        workers: as for :func:`load_traces`, as the next two.
        cache: likewise.
        progress: likewise.

    Raises:
        rankscope.errors.AnalysisError: no trace is usable.
        rankscope.errors.ConfigError: the window or all of the steps were not recorded.
        rankscope.errors.ForeignFileError: the run directory's ``run.json`` cannot be read, or is no manifest.
    """
    if isinstance(source, (Traces, LoadResult)):
        whole = source.loaded if isinstance(source, Traces) else source
        kept, manifest = only_part(whole, manifest, steps=steps, window=window)
        return _report(pipeline.analyze(kept, manifest, hta=hta), lambda: kept, manifest)
    paths = [Path(path) for path in _listed(source)]
    manifest = manifest or _manifest_of(paths)

    def loaded(progress: Progress | None = None) -> tuple[LoadResult, RunManifest | None]:
        whole = load_traces(paths, ranks=ranks, workers=workers, cache=cache, progress=progress).loaded
        return only_part(whole, manifest, steps=steps, window=window)

    load, own = loaded(progress)
    return _report(pipeline.analyze(load, own, hta=hta), lambda: loaded()[0], own)


class _Windows:
    """The windows behind a report, for its further questions. They are analysed at the first one, and kept."""

    def __init__(self, loaded: Callable[[], LoadResult], manifest: RunManifest | None) -> None:
        self._loaded, self._manifest = loaded, manifest

    @cached_property
    def _all(self) -> list[WindowResult]:
        return analyse_windows(usable(self._loaded().traces), self._manifest, lambda _where, _error: None)

    def replay(self, ranks: Sequence[int], network: float, host: float, scale: Mapping[str, float]) -> list[float]:
        """See :class:`rankscope.report.notebook.WhatIfs`."""
        kept = replayable(self._all)
        if not kept:
            raise AnalysisError("no window of this report can be replayed; its verdict says why")
        return saved_ms(kept, ranks, network, host, scale)

    def lanes(self, step: int, ranks: Sequence[int]) -> StepLanes:
        """See :meth:`rankscope.report.plots.Plots.step`."""
        return step_lanes(self._all, step, ranks)


def _report(record: ClusterReport, loaded: Callable[[], LoadResult], manifest: RunManifest | None) -> Report:
    behind = _Windows(loaded, manifest)
    return Report(record, behind.replay, behind.lanes)


def _listed(source: Path | str | Sequence[Path | str]) -> list[Path | str]:
    return [source] if isinstance(source, (str, Path)) else list(source)


def load(
    source: Path | str | Sequence[Path | str],
    *,
    ranks: Mapping[Path | str, int] | None = None,
    workers: int | None = None,
    cache: bool | Path = True,
    aligned: bool = False,
) -> pa.Table:
    """Return all events of all ranks as one Arrow table, for ``.to_pandas()``, ``polars.from_arrow`` or DuckDB.

    :func:`load_traces` has the other tables: steps, matched collectives, one row per trace.

    Args:
        source: a run directory, a folder or trace files.
        ranks: ranks of files whose content does not state it.
        workers: as for :func:`load_traces`.
        cache: likewise.
        aligned: whether ``start`` is on the common clock of the ranks, which takes a comparison of them, and not on
            each rank's own clock.

    Returns:
        Table with ``attempt``, ``window``, ``rank`` and the columns of docs/parquet.md. Times are nanoseconds.

    Raises:
        rankscope.errors.AnalysisError: no trace is usable.
    """
    traces = load_traces(source, ranks=ranks, workers=workers, cache=cache)
    return traces.aligned() if aligned else traces.events


def diff(
    before: Path | str, after: Path | str, *, store: str | None = None, force: bool = False, scale: bool = False
) -> Diff:
    """Compare two runs: what became slower or faster, and why.

    Args:
        before: the older run: a run directory, a folder of traces, a ``report.json`` or ``baseline:NAME``.
        after: the newer run.
        store: folder or URL of the baselines; default: RANKSCOPE_BASELINES, or ``rankscope_baselines``.
        force: give a verdict even if the runs are not comparable.
        scale: the numbers of ranks may differ, if each rank does the same work.

    Raises:
        rankscope.errors.RankscopeError: a run cannot be read.
    """
    return Diff(compare(open_side(before, store), open_side(after, store), force=force, scale=scale))


def check(
    run: Report | Path | str,
    conditions: Sequence[str],
    *,
    against: Path | str | None = None,
    store: str | None = None,
    force: bool = False,
) -> list[Failure]:
    """Return the conditions that hold or cannot be decided (``failure.state``); empty if the run passes.

    Args:
        run: a run directory, a folder of traces, or a report.
        conditions: in the syntax of ``rankscope check --fail-if``: ``["slower > 5 %", "slow_rank"]``.
        against: another run, or ``baseline:NAME``.
        store: folder or URL of the baselines.
        force: decide conditions on times even if the runs are not comparable.

    Raises:
        rankscope.errors.ConfigError: a condition is not valid, or needs ``against``.
    """
    parsed = [condition for text in conditions for condition in parse(text)]
    side = Side("report", run.record) if isinstance(run, Report) else open_side(run, store)
    made = None if against is None else compare(open_side(against, store), side, force=force)
    return decide(parsed, side.report, made, force=force)


def read_sweep(path: Path | str) -> Sweep:
    """Read the results of a sweep so far: ``.table`` is a DataFrame, ``.best`` the fastest setting.

    Args:
        path: the folder of the sweep.

    Raises:
        rankscope.errors.ForeignFileError: the folder holds no sweep.
    """
    return Sweep(result_of(SweepDir(Path(path)), Path(path).name))


def read_report(path: Path | str) -> Report:
    """Read ``report.json``.

    Args:
        path: the file, the folder that holds it, or a run directory.

    Raises:
        rankscope.errors.RunDirError: there is no report, or the file is not a report.
    """
    return Report(read.read_report(path))


def read_manifest(run: Path | str) -> RunManifest:
    """Read ``run.json`` of a run directory.

    Raises:
        rankscope.errors.ForeignFileError: the file cannot be read, or is no manifest.
    """
    run_dir = RunDir(Path(run))
    return read_record(RunManifest, run_dir.manifest, run_limit(run_dir))
