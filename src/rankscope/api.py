"""The public Python API. It is loaded when a function of it is first used, as ``rankscope.load_traces``.

Together with :func:`rankscope.step`, the command line, ``report.json``, ``run.json`` and the Parquet columns these are
what rankscope promises to keep (docs/api.md). Every other module may change with any release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rankscope.analysis import pipeline
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport
from rankscope.report.read import read_report
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.trace.files import load
from rankscope.trace.files.load import LoadResult

__all__ = ["ClusterReport", "LoadResult", "RunManifest", "analyze", "load_traces", "read_manifest", "read_report"]


def load_traces(
    paths: Sequence[Path | str],
    *,
    ranks: Mapping[Path | str, int] | None = None,
    workers: int | None = None,
    cache: bool | Path = True,
) -> LoadResult:
    """Find and read the traces of a job.

    A file that cannot be used is listed with the reason in the result. No error is raised for a file.

    Args:
        paths: run directories, folders of Kineto traces, or trace files.
        ranks: the ranks of files that do not say theirs.
        workers: processes to read in, this one included. None chooses by size and number of CPUs.
        cache: keep the columns of each trace as Parquet: beside a trace of a run directory, else in the user's cache
            folder, or in a folder given here. False reads and writes none.
    """
    given = {Path(path): rank for path, rank in (ranks or {}).items()}
    return load.load_traces([Path(path) for path in paths], ranks=given, workers=workers, cache=cache)


def analyze(traces: LoadResult, manifest: RunManifest | None = None, *, hta: bool = True) -> ClusterReport:
    """Compare the ranks of a job and diagnose it.

    Args:
        traces: of all ranks, from :func:`load_traces`.
        manifest: from :func:`read_manifest`, if rankscope recorded the run: it knows missing ranks and host clocks.
        hta: whether the report holds the numbers of HolisticTraceAnalysis too.

    Raises:
        rankscope.errors.AnalysisError: no trace is usable.
    """
    return pipeline.analyze(traces, manifest, hta=hta)


def read_manifest(run: Path | str) -> RunManifest:
    """Read ``run.json`` of a run directory.

    Raises:
        rankscope.errors.ForeignFileError: the file cannot be read, or is no manifest.
    """
    run_dir = RunDir(Path(run))
    return read_record(RunManifest, run_dir.manifest, run_limit(run_dir))
