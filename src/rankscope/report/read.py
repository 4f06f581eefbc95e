"""Read a report from a file."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.records.report import ClusterReport
from rankscope.rundir.begun import latest_in
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit

__all__ = ["read_report"]


def read_report(path: Path | str) -> ClusterReport:
    """Read ``report.json``.

    Args:
        path: the file, the folder that holds it, or a run directory.

    Raises:
        rankscope.errors.RunDirError: there is no report, or the file is not one.
    """
    path = Path(path)
    candidates = [path / "report" / "report.json", path / "report.json"] if path.is_dir() else [path]
    found = next((candidate for candidate in candidates if os.path.lexists(candidate)), None)
    if found is None:
        if not os.path.lexists(path):
            raise RunDirError(f"{path} does not exist; name a run directory, its report folder or report.json")
        if latest := latest_in(path):
            raise RunDirError(f"{path} is a folder of runs; name one of them: {latest} is the latest")
        raise RunDirError(f"{path} holds no report.json; `rankscope analyze {path} --output {path}/report` writes one")
    try:
        return read_record(ClusterReport, found, run_limit(RunDir(found.parent.parent)))
    except ForeignFileError as error:
        raise RunDirError(f"not a report of rankscope: {error}") from error
