"""After the job: gather, analyse, write the report. The job's exit code is settled and nothing here may change it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.config import ToolConfig
from rankscope.errors import RankscopeError
from rankscope.launcher.job import Session
from rankscope.launcher.progress import bars, gathering
from rankscope.launcher.torchrun import Ending

if TYPE_CHECKING:
    from types import FrameType

    from rankscope.progress import Work
    from rankscope.records.manifest import RunManifest
    from rankscope.rundir.layout import RunDir

__all__ = ["Outcome", "wrap_up"]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What ``rankscope run`` came to."""

    ending: Ending
    summary: str | None = None
    """The report for a terminal; None on nodes that are not the head, and where no report could be made."""
    report: Path | None = None
    """Folder of the report."""


def wrap_up(session: Session, ending: Ending, config: ToolConfig, say: Say) -> Outcome:
    """Never raises. A signal from now on ends the process at once, with torchrun's exit code."""
    try:
        _end_at_once_on_signals(ending)
        with bars(say) as doing:
            manifest = _gather(session, ending, config, say, gathering(session.spool, doing, say))
            if manifest is None:
                return Outcome(ending)
            return _report(session.run_dir, manifest, ending, config, say, doing)
    except BaseException as error:  # also torchrun's SignalException, raised before our handlers stood
        say(f"stopped after the job: {_in_a_line(error)}; what was gathered is in {session.run_dir.path}")
        return Outcome(ending)


def _gather(session: Session, ending: Ending, config: ToolConfig, say: Say, progress: Say) -> RunManifest | None:
    try:
        manifest = session.helper.finish(ending.exit_code, progress=progress, patience_s=config.gather.timeout_s)
    except Exception as error:
        say(f"gathering failed: {_in_a_line(error)}; what the ranks left is in {session.spool.path}")
        return None
    session.discard_spool()
    return manifest


def _report(
    run_dir: RunDir, manifest: RunManifest, ending: Ending, config: ToolConfig, say: Say, doing: Work | None
) -> Outcome:
    later = f"`rankscope analyze {run_dir.path} --output {run_dir.report}` writes the report"
    if not config.analysis.enabled:
        say(f"traces are in {run_dir.path}; {later}")
        return Outcome(ending)
    if ending.signal is not None:
        # Whoever sent the signal will not wait for long, and traces are what cannot be had again.
        say(f"stopped by {signal.Signals(ending.signal).name}: traces are in {run_dir.path}; {later}")
        return Outcome(ending)
    try:
        from rankscope.analysis.pipeline import analyze, stages
        from rankscope.report import WRITERS, write_report
        from rankscope.trace.files.load import load_traces

        if doing is None:
            say("analysing")
            load, progress = load_traces([run_dir.path]), say
        else:
            load = load_traces([run_dir.path], progress=doing.bytes("loading traces"))
            progress = doing.stages(stages(load, hta=config.analysis.hta))
        report = analyze(load, manifest, hta=config.analysis.hta, progress=progress)
        write_report(report, run_dir.report)
        return Outcome(ending, summary=WRITERS["terminal"](report), report=run_dir.report)
    except RankscopeError as error:
        say(f"no report: {error}")
        for note in manifest.notes:
            say(note)
    except Exception as error:
        say(f"the analysis failed: {_in_a_line(error)}; traces are in {run_dir.path}")
    return Outcome(ending)


def _in_a_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _end_at_once_on_signals(ending: Ending) -> None:
    """Replace torchrun's handlers, which raise in the middle of whatever runs and stay installed after it."""
    if threading.current_thread() is not threading.main_thread():
        return

    def leave(_number: int, _frame: FrameType | None) -> None:
        for child in multiprocessing.active_children():
            child.kill()
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")  # bars hide the cursor
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                stream.flush()
        os._exit(ending.exit_code)

    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
        signal.signal(getattr(signal, name), leave)
