"""The process that makes the report of a finished run: ``rankscope.launcher.report_process RUN hta|no-hta WHERE``.

It is a separate process so that its needs (time, memory, libraries) can neither delay nor end the launcher, whose exit
code is the job's. It writes its progress, and the report, as messages (:class:`HelperMessage`) to standard output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rankscope.errors import RankscopeError
from rankscope.records.codec import to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.running.node_task import HelperMessage
from rankscope.records.secrets import mask_text
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit

__all__ = ["main", "make"]

_EVERY_BYTES = 1 << 20


def main(path: str, where: str, *, hta: bool) -> None:
    """Make the report, or report why there is none. ``where``: the name of the run directory in the report."""
    _outlive_what_ends_the_job()
    tell = _messages()
    run_dir = RunDir(Path(path))
    try:
        make(run_dir, where, hta=hta, tell=tell)
    except RankscopeError as error:
        tell(HelperMessage(kind="lacking", text=f"no report: {error}"))
        _tell_notes(run_dir, tell)
    except Exception as error:
        text = mask_text(" ".join(f"{type(error).__name__}: {error}".split()))
        shows = f"`rankscope analyze {where}` shows it"
        tell(HelperMessage(kind="lacking", text=f"the analysis failed: {text}; {shows}"))


def make(run_dir: RunDir, where: str, *, hta: bool, tell: Callable[[HelperMessage], None]) -> None:
    """Load, analyse and write.

    Raises:
        RankscopeError: no report can be made from the files. A full disk does not prevent that it is shown.
    """
    from rankscope.analysis.pipeline import analyze, stages
    from rankscope.privacy.places import with_place
    from rankscope.report import write_report
    from rankscope.trace.files.load import load_traces

    manifest = read_record(RunManifest, run_dir.manifest, run_limit(run_dir))
    last = -_EVERY_BYTES

    def loaded(done: float, total: float, *_: object) -> None:
        nonlocal last
        if done - last >= _EVERY_BYTES or done == total:
            last = int(done)
            tell(HelperMessage(kind="bytes", text="loading traces", done=done, total=total))

    load = load_traces([run_dir.path], progress=loaded)
    tell(HelperMessage(kind="stages", total=stages(load, hta=hta)))
    report = analyze(load, manifest, hta=hta, progress=lambda text: tell(HelperMessage(kind="stage", text=text)))
    if where != str(run_dir.path):
        report = with_place(report, run_dir.path, where)
    why = ""
    try:
        write_report(report, run_dir.report)
    except OSError as error:
        why = f"the report could not be written to {run_dir.report}: {error.strerror or error}"
    tell(HelperMessage(kind="report", text=to_json(report, indent=None), placed=not why))
    if why:
        tell(
            HelperMessage(
                kind="lacking", text=f"{why}; `rankscope analyze {where} --output FOLDER` writes it elsewhere"
            )
        )


def _tell_notes(run_dir: RunDir, tell: Callable[[HelperMessage], None]) -> None:
    with contextlib.suppress(RankscopeError, ValueError):
        for note in read_record(RunManifest, run_dir.manifest, run_limit(run_dir)).notes:
            tell(HelperMessage(kind="note", text=note))


def _messages() -> Callable[[HelperMessage], None]:
    """Reserve standard output for messages; output of libraries goes to standard error instead."""
    descriptor = os.dup(1)
    os.dup2(2, 1)

    def tell(message: HelperMessage) -> None:
        line = to_json(message, indent=None).encode() + b"\n"
        with contextlib.suppress(OSError):  # no process reads this any more; the report is made nevertheless
            while line:
                line = line[os.write(descriptor, line) :]

    return tell


def _outlive_what_ends_the_job() -> None:
    """Handle, instead of ignoring, the signals that end the job: ignoring would be inherited by the workers, which the
    pool ends by SIGTERM."""
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), lambda *_: None)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3], hta=sys.argv[2] == "hta")
