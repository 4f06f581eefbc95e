"""``rankscope run`` and ``rankscope demo``."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rankscope.cli.console import hold_standard_descriptors, say, show_summary, tell
from rankscope.errors import ConfigError, RankscopeError
from rankscope.rundir.spool import disabled

if TYPE_CHECKING:
    from rankscope.launcher.run.arguments import RunArguments
    from rankscope.launcher.wrap_up import Outcome

__all__ = ["demo_verb", "run"]


def run(words: Sequence[str]) -> int:
    """Launch a script under torchrun, record it, and report. Where rankscope fails, the job runs as under torchrun."""
    from rankscope.launcher.run.arguments import HelpAsked, help_text, parse
    from rankscope.launcher.run.torchrun import run_torchrun
    from rankscope.launcher.wrap_up import Outcome

    try:
        arguments = parse(words)
    except HelpAsked:
        print(help_text())
        return 0
    if disabled(os.environ):
        outcome = Outcome(run_torchrun(arguments.torchrun))
    else:
        hold_standard_descriptors()
        outcome = _recorded(arguments, words)
    # On stderr: the job's stdout may be read by a program and stays the job's.
    if outcome.report is not None:
        show_summary(outcome.report)
    if outcome.folder is not None:
        tell(f"\nReport: {outcome.folder / 'report.html'}")
    outcome.ending.leave()
    return outcome.ending.exit_code


def _recorded(arguments: RunArguments, words: Sequence[str]) -> Outcome:
    from rankscope.launcher.run.launch import launch
    from rankscope.launcher.run.script_arguments import with_settings
    from rankscope.launcher.run.torchrun import run_torchrun
    from rankscope.launcher.wrap_up import Outcome

    try:
        from rankscope.compose import compose

        composed = compose(arguments.overrides, arguments.config_dirs)
    except RankscopeError:
        raise
    except Exception as error:  # a broken Hydra must not end the job
        say(f"not recording, the job runs without rankscope: {type(error).__name__}: {error}")
        return Outcome(run_torchrun(arguments.torchrun))
    config, torchrun = composed.config, arguments.torchrun
    if config.script:
        torchrun.training_script_args = with_settings(torchrun.training_script_args, config.script)
    with _environment(config.env):
        return launch(arguments, config, plain=composed.plain, argv=["rankscope", "run", *words], say=say)


@contextlib.contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """What the ranks inherit."""
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def demo_verb(arguments: argparse.Namespace) -> int:
    """Train the demo job with a fault planted."""
    from rankscope.demo import JOBS
    from rankscope.demo.faults import FAULTS
    from rankscope.demo.loopback import loopback_rendezvous

    fault, ranks = FAULTS[arguments.fault], arguments.ranks
    bad = ranks - 1 if arguments.bad_rank is None else arguments.bad_rank
    if not 1 <= ranks <= 64:
        raise ConfigError(f"--ranks {ranks} is out of 1 to 64; 2 are enough to see a slow one")
    if not 0 <= bad < ranks:
        raise ConfigError(f"--bad-rank {bad} is none of the {ranks} ranks, 0 to {ranks - 1}")
    lacking = fault.lacking(ranks)
    if lacking is not None:
        raise ConfigError(f"--fault {arguments.fault} needs {lacking}")
    if arguments.then_fix:
        from rankscope.cli.then_fix import then_fix

        return then_fix(arguments, tuple(fault.settings), arguments.steps or fault.steps)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # what torchrun would set, without its banner
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else Kineto logs each start and stop
    job = ["--fault", arguments.fault, "--bad-rank", bad, "--steps", arguments.steps or fault.steps]
    if arguments.size is not None:
        job += ["--size", arguments.size]
    settings = [word for setting in (*fault.settings, *arguments.overrides) for word in ("-S", setting)]
    with loopback_rendezvous() as rendezvous:
        words = [*rendezvous, "--nproc-per-node", ranks, *settings, JOBS / fault.script, *job]
        return run([str(word) for word in words])
