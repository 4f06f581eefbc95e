"""``rankscope capture``."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs, add_identity
from rankscope.cli.parts.audit_log import note
from rankscope.cli.parts.console import say
from rankscope.cli.parts.sealed import opened_runs
from rankscope.errors import ConfigError, RunDirError
from rankscope.limits import MAX_WINDOW_STEPS
from rankscope.records.spec import DETAILS
from rankscope.rundir.layout import RunDir

__all__ = ["CAPTURED", "WARMUP", "add_capture", "capture_verb"]

CAPTURED, WARMUP = 5, 2
"""Default numbers of steps to record and of warm-up steps."""
_RECORD = re.compile(r"nodes/.*claim|attempt_.*/rank_\d+\.json\Z")


def add_capture(verbs: Verbs) -> None:
    """Add the verb."""
    capture = verbs.add_parser("capture", help="record a window of a job that is running under `rankscope run`")
    capture.add_argument("path", type=Path, metavar="RUN", help="the run directory, which the job said at its start")
    capture.add_argument("--steps", type=int, default=CAPTURED, help="steps to record (default: %(default)s)")
    capture.add_argument(
        "--warmup", type=int, default=WARMUP, help="steps to throw away before them (default: %(default)s)"
    )
    capture.add_argument("--detail", choices=DETAILS, default="", help="what else to record")
    capture.add_argument("--timeout", type=float, default=120, metavar="S", help="wait so long (default: 120)")
    add_identity(capture)
    capture.set_defaults(verb=capture_verb)


def capture_verb(arguments: argparse.Namespace) -> int:
    """Request a window from a running job, and wait until all ranks have answered."""
    from rankscope.node.watching.requests import answers, ask

    for name in ("steps", "warmup"):
        asked = getattr(arguments, name)
        if not 1 <= asked <= MAX_WINDOW_STEPS:
            raise ConfigError(
                f"--{name} {asked} is out of its limits of 1 to {MAX_WINDOW_STEPS}: a window is kept in the memory of "
                "the training process until it closes; ask for several shorter ones"
            )
    run_dir = RunDir(arguments.path)
    with opened_runs([run_dir.path], arguments, wanted=_RECORD.match):
        pass  # fails early without the key, which is needed to read the answers
    request = ask(run_dir, steps=arguments.steps, warmup=arguments.warmup, detail=arguments.detail)
    note("asked for a window", [run_dir.path], request=request.name)
    say(f"{request.name}: asked for {request.steps} steps of every rank")
    deadline = time.monotonic() + arguments.timeout
    while True:
        with opened_runs([run_dir.path], arguments, wanted=_RECORD.match) as (plain,):
            records = answers(RunDir(plain), request)
        if records and len(records) == records[0].world_size:
            break
        if time.monotonic() > deadline:
            answered = (
                f"{len(records)} of {records[0].world_size} ranks have answered" if records else "no rank has answered"
            )
            raise RunDirError(
                f"{answered} within {arguments.timeout:.0f} s; is the job training? The request stands: "
                f"what comes later is kept in {run_dir.path}"
            )
        time.sleep(0.2)
    first = records[0]
    folder = run_dir.window(first.attempt, first.window or 0)
    whole = sum(record.trace is not None for record in records)
    steps = f"steps {first.first_step} to {first.last_step}" if first.first_step is not None else "no steps"
    print(f"{folder}: {steps}, {whole} of {len(records)} ranks")
    for reason in sorted({record.reason for record in records if record.trace is None and record.reason}):
        say(reason)
    say(f"`rankscope analyze {folder}` compares the ranks now; the report at the end of the job holds all windows")
    return 0 if whole else RunDirError.exit_code
