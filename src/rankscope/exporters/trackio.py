"""trackio: a run in a local database, which ``trackio show`` opens. No data leaves this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

from rankscope.errors import ConfigError
from rankscope.exporters.base import Exporter, needed, run_name
from rankscope.report.notebook import Report

__all__ = ["EXPORTER"]

_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID", "TRACKIO_WEBHOOK_URL")
"""Variables that make trackio send numbers to other machines."""


def _write(report: Report, destination: str, step: int) -> str:
    folder, verdict = Path(destination).absolute(), report.record.verdict
    with _environment(folder), redirect_stdout(StringIO()):  # trackio prints how its dashboard is opened
        trackio = needed("trackio", "trackio")
        place = Path(needed("trackio.utils", "trackio").TRACKIO_DIR).absolute()
        if place != folder:
            raise ConfigError(
                f"trackio was loaded before in this process, and writes to {place}; give that as the place, or set "
                f"TRACKIO_DIR={folder} before it is loaded"
            )
        run = trackio.init(
            project="rankscope", name=run_name(report), embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        numbers = {**report.scalars(), "rankscope/verdict": str(verdict.kind), "rankscope/sentence": verdict.sentence}
        run.log(numbers, step)
        trackio.finish()  # otherwise trackio finishes the run again when the process ends
    return f"{folder}; TRACKIO_DIR={folder} trackio show --project rankscope"


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    changes: dict[str, str | None] = {"TRACKIO_DIR": str(folder), **dict.fromkeys(_ELSEWHERE)}
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        yield
    finally:
        _set(before)


def _set(changes: dict[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


EXPORTER = Exporter(name="trackio", place="a folder, trackio's own (TRACKIO_DIR)", write=_write)
