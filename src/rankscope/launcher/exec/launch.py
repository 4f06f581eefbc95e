"""``rankscope exec``: run any command, with the agent in those processes below it that turn out to be ranks.

Above a launcher, where this process has no rank, it stays as the parent of the command, as ``rankscope run`` does with
torchrun, and shows the report. If a launcher has started it for one rank, it becomes the command: process id, signals
and lifetime are the command's own, and the node's helper, which is not its child, finishes the run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rankscope.config import ToolConfig
from rankscope.config_summary import plan_in_words
from rankscope.errors import ConfigError, RankscopeError, RunDirError
from rankscope.launcher.exec.command import Command, become
from rankscope.launcher.exec.join import join, sign_in, spool_of
from rankscope.launcher.exec.left_running import left_running
from rankscope.launcher.exec.plan import ExecArguments, is_elastic, plan_of
from rankscope.rank_identity import Identity, launcher_process
from rankscope.rundir.spool import Spool

__all__ = ["run_as_parent", "run_in_rank"]

Say = Callable[[str], None]
Compose = Callable[[], tuple[ToolConfig, dict[str, Any]]]

_POLL_S = 0.1
_AFTER_SIGNAL_S = 5.0
"""Shorter than Slurm's KillWait and Kubernetes' grace period, 30 s by default, of which the helper needs a part."""


def run_as_parent(arguments: ExecArguments, compose: Compose, argv: list[str], say: Say) -> Any:
    """Run the command as its parent; return the :class:`~rankscope.launcher.wrap_up.Outcome`.

    Args:
        arguments: the command line.
        compose: returns the configuration, and the same for the manifest.
        argv: the whole command line, for the manifest.
        say: called with single lines on progress and on errors of rankscope.

    Raises:
        ConfigError: a wrong setting; nothing was started.
        RunDirError: the requested run directory cannot be used; nothing was started.
    """
    command = Command(arguments.command)  # forked while this process is small and has one thread
    config = None
    try:
        from rankscope.launcher.job import begin, changes_for
        from rankscope.launcher.live_line import live_line
        from rankscope.launcher.wrap_up import Outcome, wrap_up

        config, plain = compose()
        session = begin(plan_of(None, config, os.environ, ""), config, argv=argv, plain=plain)
    except Exception as error:
        if _is_the_users(error, config):
            command.drop()
            raise
        say(_not_recording(error))
        from rankscope.launcher.wrap_up import Outcome

        return Outcome(command.run({}))
    say(_begins(config, session.run_dir, session.wanted, session.spool))
    with live_line(session.spool, config.live.mode, say):
        ending = command.run(changes_for(session.spool, os.environ))
    with contextlib.suppress(OSError):
        if (left := left_running(session.spool)) is not None and ending.signal is None:
            say(left)
    return wrap_up(session, ending, config, say)


def run_in_rank(arguments: ExecArguments, identity: Identity, compose: Compose, argv: list[str], say: Say) -> int:
    """Join the run of this node, or begin it, and become the command.

    Returns:
        The exit code, if this process stayed as the parent of the command; it does not return otherwise.

    Raises:
        RankscopeError: as in :func:`run_as_parent`.
    """
    work = _stay if _dies_with_us() else _become
    return work(arguments, identity, compose, argv, say)


def _become(arguments: ExecArguments, identity: Identity, compose: Compose, argv: list[str], say: Say) -> int:
    changes: dict[str, str] = {}
    try:
        from rankscope.launcher.job import changes_for

        launcher = launcher_process(identity)
        spool = spool_of(launcher)
        join(spool, lambda: _in_a_child(lambda: _begin(spool, identity, launcher, compose, argv, say)))
        _sign_in_all(spool, os.getpid(), launcher)
        changes = changes_for(spool, os.environ)
    except RankscopeError:
        raise
    except Exception as error:
        say(_not_recording(error))
    become(arguments.command, changes)


def _stay(arguments: ExecArguments, identity: Identity, compose: Compose, argv: list[str], say: Say) -> int:
    """Stay as the parent of the command on the first process of a node, where processes left behind are ended with the
    job (a Slurm step, a container). It stays until all is gathered, at most for gather.exit_grace_s; the other
    processes become their command."""
    commands: list[Command] = []
    helpers: list[tuple[Any, float]] = []
    changes: dict[str, str] = {}

    def start() -> None:
        commands.append(Command(arguments.command))
        session, config = _begin(spool, identity, launcher, compose, argv, say)
        helpers.append((session.helper, config.gather.exit_grace_s))

    try:
        from rankscope.launcher.job import changes_for

        launcher = launcher_process(identity)
        spool = spool_of(launcher)
        join(spool, start)
        _sign_in_all(spool, commands[0].pid if commands else os.getpid(), launcher)
        changes = changes_for(spool, os.environ)
    except RankscopeError:
        for command in commands:
            command.drop()
        raise
    except Exception as error:
        say(_not_recording(error))
    if not commands:
        become(arguments.command, changes)
    ending = commands[0].run(changes)
    for helper, limit_s in helpers:
        _see_off(helper, commands[0], limit_s)
    ending.leave()
    return ending.exit_code


def _see_off(helper: Any, command: Command, limit_s: float) -> None:
    """Wait until all is gathered. If the job is being ended by a signal, wait only some seconds: a SIGKILL follows, and
    a killed process does not have the exit code of its command."""
    deadline = time.monotonic() + limit_s
    with contextlib.suppress(Exception):
        helper.let_go()
        while time.monotonic() < deadline:
            if command.stopped:
                deadline = min(deadline, time.monotonic() + _AFTER_SIGNAL_S)
            message = helper.next_message(_POLL_S)
            if message is not None and message.kind == "done":
                return


def _begin(
    spool: Spool, identity: Identity, launcher: str, compose: Compose, argv: list[str], say: Say
) -> tuple[Any, ToolConfig]:
    from rankscope.launcher.job import begin

    config, plain = compose()
    plan = plan_of(identity, config, os.environ, launcher)
    try:
        session = begin(plan, config, argv=argv, plain=plain, spool=spool, ends_with_ranks=True)
    except RunDirError as error:
        if _is_the_users(error, config):
            raise
        raise OSError(str(error)) from error
    say(_begins(config, session.run_dir, session.wanted, spool))
    if config.analysis.enabled and session.run_dir is not None:
        say(f"the report will be in {session.run_dir}/report when the job has ended")
    return session, config


def _in_a_child(work: Callable[[], object]) -> None:
    """Run the work in a child process, so that the helper is not a child of what this process becomes.

    The command may wait for all its children.

    Raises:
        RankscopeError: raised by the work.
        ChildProcessError: it failed otherwise.
    """
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except RankscopeError as error:
            _write(writes, f"{type(error).__name__}\n{error}")
        except BaseException as error:
            _write(writes, f"\n{type(error).__name__}: {error}")
        os._exit(code)
    os.close(writes)
    with os.fdopen(reads, "rb") as stream:
        kind, _, text = stream.read().decode(errors="replace").partition("\n")
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return
    if kind in ("ConfigError", "RunDirError"):
        raise ConfigError(text) if kind == "ConfigError" else RunDirError(text)
    raise ChildProcessError(text or f"the process that should have started the helper ended with status {status}")


def _write(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode()[:4096])


def _sign_in_all(spool: Spool, pid: int, launcher: str) -> None:
    """Register this process, and its launcher if that may restart it."""
    sign_in(spool, pid)
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")
    if (restarts.isdigit() and int(restarts) > 0) or is_elastic(launcher):
        with contextlib.suppress(OSError):
            sign_in(spool, int(launcher.split()[1]))


def _dies_with_us(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether children end with this process: Slurm ends all processes of a step with its tasks, and a container
    ends with its first process."""
    return "SLURM_JOB_ID" in environ or os.getpid() == 1 or os.getppid() == 1


def _is_the_users(error: Exception, config: ToolConfig | None) -> bool:
    """Return whether the user can correct the error and nothing was started: a wrong setting, or a folder that the user
    named."""
    named = config is not None and config.run.dir is not None
    return isinstance(error, ConfigError) or (isinstance(error, RankscopeError) and named)


def _not_recording(error: Exception) -> str:
    return f"not recording, the job runs without rankscope: {type(error).__name__}: {' '.join(str(error).split())}"


def _begins(config: ToolConfig, run_dir: Path | str | None, wanted: Path | str, spool: Spool) -> str:
    plan = plan_in_words(config)[0]
    if run_dir is not None:
        return f"{plan}; run directory {run_dir}"
    return f"{plan}; {wanted} does not answer, the job starts all the same and what is recorded waits in {spool.path}"
