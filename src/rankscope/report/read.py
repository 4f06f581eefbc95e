"""Read a report from a file."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.records.codec import SCHEMA_VERSION
from rankscope.records.report import ClusterReport
from rankscope.rundir.begun import refuse_folder_of_runs
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit

__all__ = ["read_report"]


def read_report(path: Path | str) -> ClusterReport:
    """Read ``report.json``.

    Args:
        path: the file, the folder that holds it, or a run directory.

    Raises:
        rankscope.errors.RunDirError: there is no report, the file is not one, or its schema has another major
            version.
    """
    path = Path(path)
    candidates = [path / "report" / "report.json", path / "report.json"] if path.is_dir() else [path]
    file = next((candidate for candidate in candidates if os.path.lexists(candidate)), None)
    if file is None:
        if not os.path.lexists(path):
            raise RunDirError(f"{path} does not exist; name a run directory, its report folder or report.json")
        refuse_folder_of_runs(path)
        raise RunDirError(f"{path} holds no report.json; `rankscope analyze {path} --output {path}/report` writes one")
    try:
        report = read_record(ClusterReport, file, run_limit(RunDir(file.parent.parent)))
    except ForeignFileError as error:
        raise RunDirError(f"not a report of rankscope: {error}") from error
    if report.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise RunDirError(
            f"{file} has schema {report.schema_version}, and this rankscope reads {SCHEMA_VERSION}; read it with the "
            "version of rankscope that wrote it"
        )
    return report
