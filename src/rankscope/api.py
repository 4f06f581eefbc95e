"""The public Python API. It is loaded when one of its functions is first used, as ``rankscope.load_traces``.

These functions, :func:`rankscope.step`, the command line, ``report.json``, ``run.json`` and the Parquet columns are
public (docs/api.md). Every other module may change with any release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rankscope.analysis import pipeline
from rankscope.analysis.evidence.questions import replayable, saved_ms
from rankscope.analysis.windows.all_windows import analyse_windows, usable
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.compare.compare import compare
from rankscope.compare.gate import Failure, decide, parse
from rankscope.compare.show.notebook import Diff
from rankscope.compare.sides.side import Side
from rankscope.compare.sources import open_side
from rankscope.errors import AnalysisError
from rankscope.records.manifest import RunManifest
from rankscope.report import read
from rankscope.report.notebook import Ask, Report
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.result import result_of
from rankscope.sweeps.show.notebook import Sweep
from rankscope.trace.files import load as files
from rankscope.trace.files.load import LoadResult
from rankscope.trace.files.parquet import events_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Diff",
    "Failure",
    "LoadResult",
    "Report",
    "RunManifest",
    "Sweep",
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
    paths: Sequence[Path | str],
    *,
    ranks: Mapping[Path | str, int] | None = None,
    workers: int | None = None,
    cache: bool | Path = True,
) -> LoadResult:
    """Find and read the traces of a job.

    No error is raised for a file that cannot be used; the result lists it with the reason.

    Args:
        paths: run directories, folders of Kineto traces, or trace files.
        ranks: ranks of files whose content does not state it.
        workers: number of processes that read, including this one. None chooses by size and number of CPUs.
        cache: whether the columns of each trace are stored as Parquet: next to a trace of a run directory, for other
            traces in the user's cache folder, or in a folder given here. False neither reads nor writes them.
    """
    given = {Path(path): rank for path, rank in (ranks or {}).items()}
    return files.load_traces([Path(path) for path in paths], ranks=given, workers=workers, cache=cache)


def analyze(
    source: LoadResult | Path | str | Sequence[Path | str],
    manifest: RunManifest | None = None,
    *,
    ranks: Mapping[Path | str, int] | None = None,
    hta: bool | Literal["all"] = True,
    cache: bool | Path = True,
) -> Report:
    """Compare the ranks of a job and diagnose it.

    Args:
        source: a run directory, a folder, trace files, or the result of :func:`load_traces`.
        manifest: the result of :func:`read_manifest`, with missing ranks and host clocks. It is read automatically if
            ``source`` is one run directory.
        ranks: ranks of files whose content does not state it.
        hta: whether the report includes the numbers of HolisticTraceAnalysis. Above 64 ranks they are computed for the
            slow ranks and one other, unless it is ``all``.
        cache: as for :func:`load_traces`.

    Raises:
        rankscope.errors.AnalysisError: no trace is usable.
        rankscope.errors.ForeignFileError: the run directory's ``run.json`` cannot be read, or is no manifest.
    """
    if isinstance(source, LoadResult):
        return Report(pipeline.analyze(source, manifest, hta=hta), _replays(lambda: source, manifest))
    paths = _listed(source)
    if manifest is None and len(paths) == 1 and RunDir(Path(paths[0])).manifest.is_file():
        manifest = read_manifest(paths[0])

    def loaded() -> LoadResult:
        return load_traces(paths, ranks=ranks, cache=cache)

    return Report(pipeline.analyze(loaded(), manifest, hta=hta), _replays(loaded, manifest))


def _replays(loaded: Callable[[], LoadResult], manifest: RunManifest | None) -> Ask:
    """Return the function behind ``report.what_if(...)``. It analyses the windows at its first call, and keeps them."""
    kept: list[WindowResult] = []

    def ask(ranks: Sequence[int], network: float, host: float, scale: Mapping[str, float]) -> list[float]:
        if not kept:
            windows = analyse_windows(usable(loaded().traces), manifest, lambda _where, _error: None)
            kept.extend(replayable(windows))
        if not kept:
            raise AnalysisError("no window of this report can be replayed; its verdict says why")
        return saved_ms(kept, ranks, network, host, scale)

    return ask


def _listed(source: Path | str | Sequence[Path | str]) -> list[Path | str]:
    return [source] if isinstance(source, (str, Path)) else list(source)


def load(
    source: Path | str | Sequence[Path | str],
    *,
    ranks: Mapping[Path | str, int] | None = None,
    cache: bool | Path = True,
) -> pa.Table:
    """Return all events of all ranks as one Arrow table, for ``.to_pandas()``, ``polars.from_arrow`` or DuckDB.

    Args:
        source: a run directory, a folder or trace files.
        ranks: ranks of files whose content does not state it.
        cache: as for :func:`load_traces`.

    Returns:
        Table with ``attempt``, ``window``, ``rank`` and the columns of docs/parquet.md. Times are nanoseconds on each
        rank's own clock.

    Raises:
        rankscope.errors.AnalysisError: no trace is usable.
    """
    paths = _listed(source)
    loaded = load_traces(paths, ranks=ranks, cache=cache)
    if not loaded.traces:
        reasons = "; ".join(f"{file.path}: {file.reason}" for file in loaded.sources[:3])
        raise AnalysisError(
            f"no trace in {', '.join(map(str, paths))} can be used" + (f" ({reasons})" if reasons else "")
        )
    return events_table(loaded.traces)


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
