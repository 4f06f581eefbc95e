"""``rankscope top`` and ``status``: the state of a running job, on any machine that can read its run directory."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from rankscope.between.live import age_s, in_a_line, rank_rows, read_live
from rankscope.cli.parts.arguments import Verbs, add_identity
from rankscope.cli.parts.audit_log import note
from rankscope.cli.parts.console import say
from rankscope.cli.parts.keys import key_within, single_keys
from rankscope.cli.parts.sealed import LIVE, opened_runs
from rankscope.cli.verbs.jobs.capture import CAPTURED, WARMUP
from rankscope.errors import RunDirError
from rankscope.records.codec import to_json
from rankscope.records.running.live import NodeLive
from rankscope.rundir.begun import require_begun
from rankscope.rundir.layout import RunDir

__all__ = ["add_top", "status_verb", "top_verb"]

PAUSE_S = 2.0
_STALE_S = 90.0
"""A node that has written nothing for so long is reported as stale. Helpers write every few seconds, and in a job of a
thousand nodes every 50 s."""


def add_top(verbs: Verbs) -> None:
    """Add the verbs."""
    top = verbs.add_parser("top", help="how a running job is doing: all ranks, again and again")
    top.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    top.add_argument("--ranks", type=int, default=32, metavar="N", help="show so many ranks (default: 32)")
    top.add_argument("--once", action="store_true", help="print once and leave, as where the output is no terminal")
    add_identity(top)
    top.set_defaults(verb=top_verb)
    status = verbs.add_parser("status", help="how a running job is doing, in a line")
    status.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    status.add_argument("--json", action="store_true", help="what it is made of")
    add_identity(status)
    status.set_defaults(verb=status_verb)


def status_verb(arguments: argparse.Namespace) -> int:
    """Print the status line of `rankscope run`, or with ``--json`` the records behind it."""
    nodes = _nodes(RunDir(arguments.path), arguments)
    if arguments.json:
        print("[" + ",\n".join(to_json(node) for node in nodes) + "]")
    else:
        print(in_a_line(nodes) or "no rank has made a step so far")
    return 0


def top_verb(arguments: argparse.Namespace) -> int:
    """Print all ranks; on a terminal repeatedly until ``q`` or an interrupt. ``c`` requests a window."""
    run_dir = RunDir(arguments.path)
    if not sys.stdout.isatty() or arguments.once:
        print(_screen(run_dir, arguments))
        return 0
    status = ""
    with contextlib.suppress(KeyboardInterrupt), single_keys() as keys:
        while True:
            foot = "\n\nc records a window now, q leaves" if keys else ""
            print(f"\x1b[H\x1b[2J{_screen(run_dir, arguments)}{foot}{status}", flush=True)
            key = key_within(PAUSE_S, keys=keys)
            if key == "q":
                break
            if key == "c":
                status = f"; {_ask(run_dir)}"
    return 0


def _ask(run_dir: RunDir) -> str:
    """Request a window with the defaults of `rankscope capture`, without waiting for it. Returns a message."""
    from rankscope.node.watching.requests import ask

    try:
        request = ask(run_dir, steps=CAPTURED, warmup=WARMUP, detail="")
    except RunDirError as error:
        return str(error)
    note("asked for a window", [run_dir.path], request=request.name)
    return f"{request.name}: {request.steps} steps of every rank"


def _screen(run_dir: RunDir, arguments: argparse.Namespace) -> str:
    nodes = _nodes(run_dir, arguments)
    return "\n".join([*_head(run_dir, nodes), *_table(rank_rows(nodes), arguments.ranks)])


def _nodes(run_dir: RunDir, arguments: argparse.Namespace) -> list[NodeLive]:
    require_begun(run_dir)
    with opened_runs([run_dir.path], arguments, wanted=LIVE.match) as (plain,):
        nodes = read_live(RunDir(plain))
    if run_dir.ended:
        say("the run has ended; this is how it stood at last")
    elif nodes and (age := age_s(nodes)) > _STALE_S:
        say(f"a node has written nothing for {age:.0f} s; this may be old")
    return nodes


def _head(run_dir: RunDir, nodes: list[NodeLive]) -> list[str]:
    news = list(dict.fromkeys(node.news for node in nodes if node.news))
    line = in_a_line(nodes, 10_000) or "no rank has made a step so far"
    return [f"{run_dir.path}  {line}", *news, ""]


def _table(rows: list[list[str]], most: int) -> list[str]:
    shown = rows[: most + 1]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return lines + ([f"and {len(rows) - len(shown)} ranks more"] if len(rows) > len(shown) else [])
