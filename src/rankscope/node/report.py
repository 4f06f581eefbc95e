"""Make the report in a separate process, within a time limit, whatever happens to that process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time

from rankscope import own_process
from rankscope.node.messages import Messages
from rankscope.records.codec import from_json
from rankscope.records.report import ClusterReport
from rankscope.records.running.node_task import HelperMessage, NodeTask
from rankscope.rundir.layout import RunDir

__all__ = ["make_report"]

# Named, not imported: the analysis is far above the helper, which imports only the standard library.
_MODULE = "rankscope.launcher.report_process"


def make_report(run_dir: RunDir, task: NodeTask, messages: Messages) -> ClusterReport | None:
    """Start the process, pass its messages on, and report what is missing if it fails or takes too long.

    Returns:
        The report; None if none could be made.
    """
    where = task.store or str(run_dir.path)
    later = f"`rankscope analyze {where} --output {'report' if task.store else run_dir.report}` makes the report"
    messages.send(HelperMessage(kind="begun"))
    try:
        process = subprocess.Popen(
            own_process.command(_MODULE, str(run_dir.path), "hta" if task.hta else "no-hta", where),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=own_process.environment(), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        text = f"no process for the report could be started: {error}; {later}"
        messages.send(HelperMessage(kind="lacking", text=text))
        return None
    with process:
        assert process.stdout is not None
        result = _pass_on(process.stdout.fileno(), messages, time.monotonic() + task.report_timeout_s)
        if result is not None and result.kind == "report":
            return from_json(ClusterReport, result.text)
        if result is None:
            with contextlib.suppress(ProcessLookupError):  # its workers, too
                os.killpg(process.pid, signal.SIGKILL)
            limit = f"analysis.timeout_s={task.report_timeout_s:g}"
            messages.send(
                HelperMessage(
                    kind="lacking", text=f"the report took more than {limit} seconds and was given up; {later}"
                )
            )
        elif result.kind != "lacking":
            code = process.wait()
            how = f"was killed by signal {-code}, for its memory perhaps" if code < 0 else f"ended with code {code}"
            messages.send(HelperMessage(kind="lacking", text=f"the process that made the report {how}; {later}"))
    return None


def _pass_on(descriptor: int, messages: Messages, deadline: float) -> HelperMessage | None:
    """Return the message in which the process gave its result, or ``begun`` if it gave none; None if the time was
    up."""
    rest, result = b"", HelperMessage(kind="begun")
    while (left_s := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], left_s)
        if not ready:
            break
        part = os.read(descriptor, 1 << 16)
        if not part:
            return result
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                message = from_json(HelperMessage, line)
                result = message if message.kind in ("report", "lacking") and result.kind == "begun" else result
                messages.send(message)
    return None
