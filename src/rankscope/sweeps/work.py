"""Run the missing runs of a plan in order, and note each when it has ended."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.own_process import command
from rankscope.records.sweep import SweepJob, SweepPlan, SweepSetting
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.local import Stop, run_command
from rankscope.sweeps.order import order_of

__all__ = ["Launch", "go_on", "missing", "told_of"]

_PLAIN = re.compile(r"(?!(?:null|true|false|inf|nan)\Z)[A-Za-z_/][\w./-]*", re.ASCII | re.IGNORECASE)
"""A path that Hydra reads as text without quotation marks."""

Say = Callable[[str], None]
TAIL_BYTES = 1 << 16
_OF_TORCHRUN = "torch.distributed.elastic."
"""Beginning of the error with which torchrun ends because a rank has failed."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command line of every run, without the swept values."""

    flags: list[str] = field(default_factory=list)
    """Flags of torchrun, with ``--config-dir``."""
    overrides: list[str] = field(default_factory=list)
    """Overrides by ``-S``, the same in all runs."""
    script: list[str] = field(default_factory=list)
    """The script with its arguments."""

    def words(self, setting: SweepSetting, run: Path) -> list[str]:
        """Return the words after ``rankscope`` for a run."""
        settings = [*self.overrides, *setting.overrides, f"run.dir={_quoted(run)}"]
        return ["run", *self.flags, *(word for own in settings for word in ("-S", own)), *self.script]


def _quoted(path: Path) -> str:
    """Quote by Hydra's grammar, where it is needed: a backslash is literal except before a quotation mark."""
    if _PLAIN.fullmatch(str(path)):
        return str(path)
    text = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (r"\'" if found[2] else ""), str(path))
    return f"'{text}'"


def missing(plan: SweepPlan, sweep: SweepDir, *, failed_again: bool) -> list[tuple[SweepSetting, int]]:
    """Return the settings and repeats that have not ended, in the order in which they are run."""
    ended, by_number = sweep.ended(), {setting.number: setting for setting in plan.settings}
    found = []
    for number, repeat in order_of(len(plan.settings), plan.repeats):
        job = ended.get((number, repeat))
        if job is None or (failed_again and job.exit_code):
            found.append((by_number[number], repeat))
    return found


def go_on(
    todo: Sequence[tuple[SweepSetting, int]], launch: Launch, sweep: SweepDir, stop: Stop, say: Say, *, whole: int
) -> None:
    """Run the missing runs here, one after the other. A failed run does not stop the others, a signal stops all.

    Args:
        todo: of :func:`missing`.
        launch: the command line.
        sweep: the folder of the sweep.
        stop: the signals that have arrived.
        say: called with a line for each run.
        whole: number of runs of the sweep, for these lines.
    """
    for number, (setting, repeat) in enumerate(todo, start=whole - len(todo) + 1):
        if stop.signal is not None:
            return
        run = sweep.run(setting.number, repeat)
        begun = time.monotonic()
        code = run_command(command("rankscope", *launch.words(setting, run)), sweep.log(run), stop)
        if stop.signal is not None:
            return
        job = SweepJob(
            setting=setting.number,
            repeat=repeat,
            folder=run.name,
            exit_code=code,
            seconds=round(time.monotonic() - begun, 3),
            host=socket.gethostname(),
        )
        sweep.note(job)
        say(f"{number}/{whole} {setting.name}, run {repeat}: {told_of(job, sweep)}")


def told_of(job: SweepJob, sweep: SweepDir) -> str:
    """Return the result of a run, in words."""
    if not job.exit_code:
        return f"done in {job.seconds:.0f} s"
    log = sweep.log(sweep.path / job.folder)
    return f"failed with exit code {job.exit_code}; {_last_line(log)}see {log}"


def _last_line(log: Path) -> str:
    """Return the last line with an error of a failed run, if there is any: the script's rather than torchrun's."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    errors = [line.strip() for line in lines if "Error" in line and not line.startswith((" ", "\t"))]
    errors = [line for line in errors if not line.startswith(_OF_TORCHRUN)] or errors
    return f"{errors[-1][:100]}; " if errors else ""
