"""``rankscope capture`` and ``rankscope config``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from difflib import get_close_matches
from operator import attrgetter
from typing import TYPE_CHECKING

from rankscope.cli.console import say
from rankscope.errors import ConfigError, RunDirError
from rankscope.records.limits import MAX_WINDOW_STEPS
from rankscope.rundir.audit import note_deed
from rankscope.rundir.layout import RunDir

if TYPE_CHECKING:
    from rankscope.config import ToolConfig

__all__ = ["capture_verb", "config_verb"]


def capture_verb(arguments: argparse.Namespace) -> int:
    """Ask a running job for a window, and wait for the ranks' answers."""
    from rankscope.node.watching.requests import answers, ask

    for name in ("steps", "warmup"):
        asked = getattr(arguments, name)
        if not 1 <= asked <= MAX_WINDOW_STEPS:
            raise ConfigError(
                f"--{name} {asked} is out of its limits of 1 to {MAX_WINDOW_STEPS}: a window is kept in the memory of "
                "the training process until it closes; ask for several shorter ones"
            )
    run_dir = RunDir(arguments.path)
    request = ask(run_dir, steps=arguments.steps, warmup=arguments.warmup, detail=arguments.detail)
    note_deed(run_dir, "asked for a window", sys.argv, request=request.name)
    say(f"{request.name}: asked for {request.steps} steps of every rank")
    deadline = time.monotonic() + arguments.timeout
    while True:
        records = answers(run_dir, request)
        if records and len(records) == records[0].world_size:
            break
        if time.monotonic() > deadline:
            said = (
                f"{len(records)} of {records[0].world_size} ranks have answered" if records else "no rank has answered"
            )
            raise RunDirError(
                f"{said} within {arguments.timeout:.0f} s; is the job training? The request stands: "
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


def config_verb(arguments: argparse.Namespace) -> int:
    """Print the composed configuration and what it records, or what its keys mean."""
    from rankscope.compose import compose
    from rankscope.config import plan_in_words

    composed = compose(arguments.overrides, arguments.config_dirs)
    if arguments.explain is not None:
        print("\n\n".join(_explained(arguments.explain, composed.config)))
        return 0
    print(composed.yaml)
    for line in plan_in_words(composed.config):
        print(f"# {line}")
    return 0


def _explained(name: str, config: ToolConfig) -> Iterator[str]:
    """Each key that is meant by ``name`` (a key, a group, or nothing for all) with its value and meaning."""
    from rankscope.cli.config_help import as_text, keys, yaml

    found = [key for key in keys() if not name or key.name == name or key.name.startswith(f"{name}.")]
    if not found:
        near = get_close_matches(name, [key.name for key in keys()], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "`rankscope config --explain` lists all"
        raise ConfigError(f"there is no configuration key or group {name!r}; {hint}")
    for key in found:
        yield as_text(key, yaml(attrgetter(key.name)(config)))
