"""Ask the ranks of a running job where they are, and read their answers from the run directory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.limits import MAX_NODES
from rankscope.records.running.hang import NodeAnswers
from rankscope.rundir.files import replace_text
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record

__all__ = ["ask_where", "read_answers"]

_ANSWERS = "[!.]*.json*"
"""Matches encrypted files too, but no temporary files."""


def read_answers(run_dir: RunDir) -> list[NodeAnswers]:
    """Return what the nodes have placed; files that are no such record are skipped."""
    found = []
    for path in sorted(run_dir.stuck_folder.glob("*.json"))[:MAX_NODES]:
        with contextlib.suppress(ForeignFileError):
            found.append(read_record(NodeAnswers, path))
    return found


def ask_where(
    run_dir: RunDir, timeout_s: float, read: Callable[[RunDir], list[NodeAnswers]] = read_answers
) -> list[NodeAnswers]:
    """Ask all ranks of a running job where they are, and wait for the nodes.

    Args:
        run_dir: run directory of the job.
        timeout_s: longest wait in seconds. An answer takes about ten seconds, since each rank is asked twice.
        read: reads the answers; for an encrypted run, with the key.

    Returns:
        The answers that came in time.

    Raises:
        RunDirError: the run directory cannot be written.
    """
    begun = {path: _changed(path) for path in run_dir.stuck_folder.glob(_ANSWERS)}
    try:
        run_dir.stuck_folder.mkdir(exist_ok=True)
        replace_text(run_dir.stuck_question, f"{time.time_ns()}\n")
    except OSError as error:
        raise RunDirError(f"cannot write to {run_dir.stuck_folder}: {error.strerror}") from error
    nodes = len(list(run_dir.nodes.glob("*.claim.json")))
    deadline = time.monotonic() + timeout_s
    fresh: list[Path] = []
    while time.monotonic() < deadline:
        time.sleep(0.2)
        fresh = [path for path in run_dir.stuck_folder.glob(_ANSWERS) if _changed(path) != begun.get(path)]
        if len(fresh) >= nodes:
            break
    names = {path.name.removesuffix(".age").removesuffix(".json") for path in fresh}
    return [answers for answers in read(run_dir) if answers.node in names]


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
