"""After the job: follow how the node helper gathers and reports. The job's exit code is determined by then.

The helper does the work, and finishes it even if the launcher has exited; this module decides how long the launcher
waits. It uses this node's own disk only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.config import ToolConfig
from rankscope.launcher.ending import Ending
from rankscope.launcher.job import RecordedRun
from rankscope.launcher.progress import bars, gathering
from rankscope.records.codec import from_json
from rankscope.records.report import ClusterReport
from rankscope.records.running.node_task import HelperMessage, JobEnd
from rankscope.rundir.urls import is_url

if TYPE_CHECKING:
    from types import FrameType

    from rankscope.progress import ProgressCallbacks

__all__ = ["Outcome", "wrap_up"]

Say = Callable[[str], None]

_POLL_S = 0.1
_STUCK_S = 5.0
"""A helper that has moved nothing for this long waits for its store."""
_MARGIN_S = 10.0
"""Beyond the helper's own limits, in case it exceeds them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of ``rankscope run``."""

    ending: Ending
    report: ClusterReport | None = None
    """None on nodes that are not the head, and if no report could be made."""
    folder: Path | str | None = None
    """Where the report is: a folder, or a URL."""


def wrap_up(session: RecordedRun, ending: Ending, config: ToolConfig, say: Say) -> Outcome:
    """Wait for the helper and return the outcome. Never raises. A signal from now on ends the process at once, with
    torchrun's exit code."""
    try:
        _end_at_once_on_signals(ending)
        with bars(say) as doing:
            return _Listener(session, ending, config, say, doing).listen()
    except BaseException as error:  # includes torchrun's SignalException, raised before our handlers were installed
        say(f"stopped after the job: {_in_a_line(error)}; process {session.helper.pid} gathers what is left")
        return Outcome(ending)


class _Listener:
    """Waits for the helper's messages, phase by phase: gathering, the other nodes, the report."""

    def __init__(
        self, session: RecordedRun, ending: Ending, config: ToolConfig, say: Say, doing: ProgressCallbacks | None
    ) -> None:
        self._session = session
        self._ending = ending
        self._config = config
        self._say = say
        self._doing = doing
        self._progress = gathering(session.spool, doing, say)
        self._phase = "gathering"
        self._moved_at = self._gathered_at = time.monotonic()
        self._deadline = self._moved_at + config.gather.timeout_s
        self._bytes: dict[str, Callable[..., None]] = {}
        self._stage: Say = say
        self._where = session.run_dir
        self._left = ""
        self._over = False
        self._outcome = Outcome(ending)

    def listen(self) -> Outcome:
        """Wait until the helper is done, or until the time limit."""
        helper = self._session.helper
        helper.finish(JobEnd(exit_code=self._ending.exit_code, signal=self._ending.signal))
        try:
            while not self._over:
                message = helper.next_message(_POLL_S)
                if message is not None:
                    self._take(message)
                if not self._over and self._waited_enough():
                    break
                if message is not None:
                    continue
                if self._phase == "gathering" and (pending := len(self._session.spool.records())):
                    self._progress(f"gathering {pending} trace(s)")
        except Exception as error:
            self._say(
                f"gathering failed: {_in_a_line(error)}; what the ranks left is in {self._session.spool.path}, "
                f"`rankscope gather {self._session.spool.path}` places it"
            )
        return self._outcome

    def _take(self, message: HelperMessage) -> None:
        self._moved_at = time.monotonic()
        text = message.text
        if message.kind in ("claimed", "refused"):
            self._where = (text if is_url(text) else Path(text)) if message.kind == "claimed" else None
        elif message.kind == "note":
            self._say(text)
        elif message.kind == "waiting":
            self._progress(text)
        elif message.kind == "gathered":
            self._left = text
            if text:
                self._say(f"not everything could be gathered: {text}")
            self._enter("nodes", self._config.gather.timeout_s)
        elif message.kind == "begun":
            self._enter("report", self._config.analysis.timeout_s)
            if self._doing is None and self._ending.signal is None:
                self._say("analysing")
        elif message.kind == "manifest":
            self._manifest(text)
        elif message.kind in ("bytes", "stages", "stage"):
            self._draw(message)
        elif message.kind == "lacking":
            self._say(text)
        elif message.kind == "keeping":
            self._enter("traces", message.total)
        elif message.kind == "report" and self._where is not None:
            report, folder = from_json(ClusterReport, text), _report_in(self._where) if message.placed else None
            self._outcome = Outcome(self._ending, report=report, folder=folder)
        elif message.kind == "done":
            self._over = True

    def _enter(self, phase: str, limit_s: float) -> None:
        if self._phase == "gathering":
            self._gathered_at = time.monotonic()
        self._phase = phase
        self._deadline = time.monotonic() + limit_s + _MARGIN_S

    def _manifest(self, by: str) -> None:
        if by or self._config.analysis.enabled or self._where is None:
            return
        folder = _report_in(self._where)
        traces = "what could be gathered is" if self._left else "what was recorded is"
        self._say(f"{traces} in {self._where}; `rankscope analyze {self._where} --output {folder}` writes the report")

    def _draw(self, message: HelperMessage) -> None:
        if self._doing is None:
            if message.kind == "stage" and self._ending.signal is None:
                self._say(message.text)
        elif message.kind == "bytes":
            if message.text not in self._bytes:
                self._bytes[message.text] = self._doing.bytes(message.text)
            self._bytes[message.text](message.done, message.total)
        elif message.kind == "stages":
            self._stage = self._doing.stages(int(message.total))
        else:
            self._stage(message.text)

    def _waited_enough(self) -> bool:
        """Return whether the launcher stops waiting; if so, it reports what continues without it."""
        now, spool, helper = time.monotonic(), self._session.spool.path, self._session.helper
        stuck = now - self._moved_at > _STUCK_S
        number = self._ending.signal
        gathered = self._phase != "gathering"
        if number is not None and (stuck or (gathered and now - self._gathered_at > self._config.gather.exit_grace_s)):
            name = signal.Signals(number).name
            self._say(
                f"stopped by {name}: process {helper.pid} goes on with {_WORK[self._phase]} for as long as it may; "
                f"what is not placed yet is in {spool}; if it stays there, `rankscope gather {spool}` places it"
            )
            return True
        if now < self._deadline:
            return False
        stuck = self._where is None or now - self._moved_at > min(_STUCK_S, self._config.gather.timeout_s / 2)
        if self._phase in ("gathering", "traces") and not stuck:
            self._say(f"process {helper.pid} goes on gathering from {spool}, the job's end waits no longer")
            return True
        helper.end()
        where = self._where or self._session.wanted
        reasons = {
            "gathering": f"{where} did not answer within gather.timeout_s={self._config.gather.timeout_s:g} s",
            "nodes": f"{where} did not answer while run.json was written",
            "traces": f"{where} did not answer while the traces of slow ranks were placed",
            "report": f"the report took more than analysis.timeout_s={self._config.analysis.timeout_s:g} s",
        }[self._phase]
        remedy = f"what the ranks left is in {spool}, `rankscope gather {spool}` places it once the store answers"
        if self._phase == "report":
            remedy = f"`rankscope analyze {where} --output {where}/report` makes it"
        self._say(f"{reasons}; {remedy}")
        return True


def _report_in(where: Path | str) -> Path | str:
    return where / "report" if isinstance(where, Path) else f"{where}/report"


_WORK = {"gathering": "gathering", "nodes": "run.json", "report": "the report", "traces": "the traces of slow ranks"}


def _in_a_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _end_at_once_on_signals(ending: Ending) -> None:
    """Replace torchrun's handlers, which raise inside any running code and stay installed after it."""
    if threading.current_thread() is not threading.main_thread():
        return

    def leave(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            if os.isatty(2):
                os.write(2, b"\x1b[?25h")  # bars hide the cursor
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError, RuntimeError):
                stream.flush()
        os._exit(ending.exit_code)

    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
        signal.signal(getattr(signal, name), leave)
