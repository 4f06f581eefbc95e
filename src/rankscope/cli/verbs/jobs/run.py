"""``rankscope run``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rankscope.cli.parts.arguments import Verbs
from rankscope.cli.parts.console import hold_standard_descriptors, say, show_summary, tell
from rankscope.errors import RankscopeError
from rankscope.rundir.spool import disabled

if TYPE_CHECKING:
    from rankscope.launcher.run.arguments import RunArguments
    from rankscope.launcher.wrap_up import Outcome

__all__ = ["add_run", "run"]


def add_run(verbs: Verbs) -> None:
    """Add the verb."""
    verbs.add_parser("run", help="launch a script as torchrun does, record it and report", add_help=False)


def run(words: Sequence[str]) -> int:
    """Launch a script under torchrun, record it, and report. If rankscope fails, the job runs as under torchrun."""
    from rankscope.launcher.run.arguments import HelpAsked, help_text, parse
    from rankscope.launcher.run.torchrun import run_torchrun
    from rankscope.launcher.wrap_up import Outcome

    try:
        arguments = parse(words)
    except HelpAsked as asked:
        print(help_text(torchrun=asked.torchrun))
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
        tell(f"\nReport: {outcome.folder}/report.html")
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
    """Change environment variables, which the ranks inherit, while the block runs."""
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
