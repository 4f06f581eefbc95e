"""``rankscope why-stuck``: where the ranks of a running job are, and which of them the others wait for."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
import time
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs, add_identity
from rankscope.cli.parts.audit_log import note
from rankscope.cli.parts.console import say
from rankscope.cli.parts.sealed import LIVE, opened_runs
from rankscope.errors import RunDirError
from rankscope.records.running.hang import HangVerdict, NodeAnswers
from rankscope.rundir.begun import require_begun
from rankscope.rundir.layout import RunDir
from rankscope.stuck.files import ask_where, read_answers
from rankscope.stuck.verdict import why_stuck

__all__ = ["add_stuck", "why_stuck_verb"]

_LABEL = 9
"""Width of the column of labels."""
_FRESH_S = 30.0
"""Answers younger than this are shown at once, instead of asking again."""


def add_stuck(verbs: Verbs) -> None:
    """Add the verb."""
    stuck = verbs.add_parser("why-stuck", help="which rank the others wait for, while a job stands still")
    stuck.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    stuck.add_argument("--timeout", type=float, default=60, metavar="S", help="wait so long for ranks (default: 60)")
    add_identity(stuck)
    stuck.set_defaults(verb=why_stuck_verb)


def why_stuck_verb(arguments: argparse.Namespace) -> int:
    """Print where the ranks are: now in a running job, or in one that has ended, when it last stood still."""
    run_dir = RunDir(arguments.path)
    require_begun(run_dir)
    ended = run_dir.ended

    def read(run_dir: RunDir) -> list[NodeAnswers]:
        with opened_runs([run_dir.path], arguments, wanted=LIVE.match) as (plain,):
            return read_answers(RunDir(plain))

    found = read(run_dir)
    if not ended and not any(time.time_ns() - node.time_ns < _FRESH_S * 1e9 and not node.resumed for node in found):
        say("asking the ranks where they are, which takes some ten seconds")
        note("asked where the ranks are", [run_dir.path])
        found = ask_where(run_dir, arguments.timeout, read)
        if not found:
            raise RunDirError(
                f"no node of {run_dir.path} has answered within {arguments.timeout:.0f} s; does the job still run?"
            )
    verdict = why_stuck(found)
    if verdict is None:
        print(
            "No rank was asked: the job has not stood still." if ended else "No process of a rank has been seen so far."
        )
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in in_lines(verdict, width):
        print(line)
    return 0


def in_lines(verdict: HangVerdict, width: int = 0) -> list[str]:
    """Return the lines of the verdict, each part after its label, wrapped to a width unless that is 0."""
    parts = [("Stuck", verdict.sentence)]
    parts += [("Why" if not number else "", line) for number, line in enumerate(verdict.why)]
    if verdict.next:
        parts.append(("Next", verdict.next))
    asked = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(verdict.time_ns / 1e9))
    after = "the last step" if verdict.stepped else "the last sign of progress; no step was made"
    since = f"asked {asked}, {verdict.idle_s:.0f} s after {after}"
    parts.append(("When", f"{since}{'; steps went on afterwards' if verdict.resumed else ''}"))
    return [line for label, text in parts for line in _wrapped(label, text, width)]


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """Return a text behind its label, further lines below its beginning."""
    room = width - _LABEL
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) if room > _LABEL else [text]
    return [f"{label if not number else '':{_LABEL}}{line}" for number, line in enumerate(lines)]
