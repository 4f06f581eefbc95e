"""Make the report in a separate process, within a time limit, whatever happens to that process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time

from rankscope import own_process
from rankscope.node.words import Words
from rankscope.records.codec import from_json
from rankscope.records.report import ClusterReport
from rankscope.records.running.node_task import HelperWord, NodeTask
from rankscope.rundir.layout import RunDir

__all__ = ["make_report"]

# Named, not imported: the analysis is far above the helper, which imports only the standard library.
_MODULE = "rankscope.launcher.report_process"


def make_report(run_dir: RunDir, task: NodeTask, words: Words) -> ClusterReport | None:
    """Start the process, pass its messages on, and report what is missing if it fails or takes too long.

    Returns:
        The report; None if none could be made.
    """
    where = task.store or str(run_dir.path)
    later = f"`rankscope analyze {where} --output {'report' if task.store else run_dir.report}` makes the report"
    words.say(HelperWord(word="begun"))
    try:
        process = subprocess.Popen(
            own_process.command(_MODULE, str(run_dir.path), "hta" if task.hta else "no-hta", where),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=own_process.environment(), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        words.say(HelperWord(word="lacking", text=f"no process for the report could be started: {error}; {later}"))
        return None
    with process:
        assert process.stdout is not None
        told = _pass_on(process.stdout.fileno(), words, time.monotonic() + task.report_timeout_s)
        if told is not None and told.word == "report":
            return from_json(ClusterReport, told.text)
        if told is None:
            with contextlib.suppress(ProcessLookupError):  # its workers, too
                os.killpg(process.pid, signal.SIGKILL)
            limit = f"analysis.timeout_s={task.report_timeout_s:g}"
            words.say(
                HelperWord(word="lacking", text=f"the report took more than {limit} seconds and was given up; {later}")
            )
        elif told.word != "lacking":
            code = process.wait()
            how = f"was killed by signal {-code}, for its memory perhaps" if code < 0 else f"ended with code {code}"
            words.say(HelperWord(word="lacking", text=f"the process that made the report {how}; {later}"))
    return None


def _pass_on(descriptor: int, words: Words, deadline: float) -> HelperWord | None:
    """Return the message in which the process gave its result, or ``begun`` if it gave none; None if the time was
    up."""
    rest, told = b"", HelperWord(word="begun")
    while (left_s := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], left_s)
        if not ready:
            break
        part = os.read(descriptor, 1 << 16)
        if not part:
            return told
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                word = from_json(HelperWord, line)
                told = word if word.word in ("report", "lacking") and told.word == "begun" else told
                words.say(word)
    return None
