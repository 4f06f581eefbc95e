"""One run, from parsed arguments to its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rankscope.config import ToolConfig
from rankscope.config_summary import plan_in_words
from rankscope.errors import ConfigError, RunDirError
from rankscope.launcher.job import RecordedRun, begin
from rankscope.launcher.live_line import live_line
from rankscope.launcher.run.arguments import RunArguments
from rankscope.launcher.run.torchrun import run_torchrun
from rankscope.launcher.run_plan import check
from rankscope.launcher.wrap_up import Outcome, wrap_up

__all__ = ["launch"]


def launch(
    arguments: RunArguments,
    config: ToolConfig,
    *,
    plain: dict[str, Any],
    argv: Sequence[str],
    say: Callable[[str], None],
) -> Outcome:
    """Launch the job under torchrun with every rank recorded.

    Args:
        arguments: the parsed command line.
        config: what to record.
        plain: the same configuration for the manifest.
        argv: the whole command line, for the manifest.
        say: called with single lines on progress and on errors of rankscope.

    Raises:
        ConfigError: the flags contradict each other; nothing was started.
        RunDirError: the requested run directory cannot be used; nothing was started.
    """
    session = _begin(arguments, config, plain, argv, say)
    if session is None:
        return Outcome(run_torchrun(arguments.torchrun))
    if session.run_dir is not None:
        say(f"{plan_in_words(config)[0]}; run directory {session.run_dir}")
    else:
        say(
            f"{plan_in_words(config)[0]}; {session.wanted} does not answer, the job starts all the same and what is "
            f"recorded waits in {session.spool.path}"
        )
    with session.environment(), live_line(session.spool, config.live.mode, say):
        ending = run_torchrun(arguments.torchrun)
    return wrap_up(session, ending, config, say)


def _begin(
    arguments: RunArguments, config: ToolConfig, plain: dict[str, Any], argv: Sequence[str], say: Callable[[str], None]
) -> RecordedRun | None:
    """Begin the recording; if rankscope fails, the job runs as under torchrun."""
    try:
        return begin(check(arguments.torchrun, config), config, argv=argv, plain=plain)
    except ConfigError:
        raise
    except Exception as error:
        if isinstance(error, RunDirError) and config.run.dir is not None:
            raise  # the user named this folder and can name another
        say(f"not recording, the job runs without rankscope: {type(error).__name__}: {' '.join(str(error).split())}")
        return None
