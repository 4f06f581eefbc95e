"""Run each run as a job of its own on a cluster, by submitit.

Runs may overlap in time and use different nodes; the differences between nodes are then part of the scatter of the
repeats.

A job notes its own end in the folder of the sweep, so that no result is lost if the submitting process has ended. A job
that the scheduler ends notes nothing, and is repeated when the sweep continues.
"""

from __future__ import annotations

import ast
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankscope.errors import ConfigError
from rankscope.own_process import command
from rankscope.records.sweep import SweepJob, SweepSetting
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.local import Stop, run_command
from rankscope.sweeps.work import Launch, told_of

__all__ = ["parameters_of", "run_in_job", "submit", "with_rendezvous"]

_POLL_S = 2.0
_PORT = 29_400


def parameters_of(settings: Sequence[str]) -> dict[str, Any]:
    """Return parameters of submitit, from ``timeout_min=60`` and the like.

    Raises:
        ConfigError: one has no value.
    """
    found: dict[str, Any] = {}
    for text in settings:
        name, has_value, value = text.partition("=")
        if not (name.isidentifier() and has_value):
            raise ConfigError(f"--cluster-set {text} is no NAME=VALUE, as timeout_min=60 is")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def submit(
    todo: Sequence[tuple[SweepSetting, int]],
    launch: Launch,
    sweep: SweepDir,
    stop: Stop,
    say: Callable[[str], None],
    *,
    cluster: str,
    parameters: dict[str, Any],
) -> None:
    """Submit the missing runs, and wait for them; if this process is stopped, jobs that have not ended are cancelled.

    Args:
        todo: settings and repeats.
        launch: the command line.
        sweep: the folder of the sweep, which every node sees.
        stop: the signals that have arrived.
        say: called with a line for each run.
        cluster: ``slurm``, or ``local`` and ``debug`` of submitit.
        parameters: of submitit's executors.

    Raises:
        ConfigError: submitit is not installed, or rejects the parameters.
    """
    try:
        import submitit
    except ImportError as error:
        raise ConfigError(
            f"--cluster takes a package that is not installed ({error}); pip install 'rankscope[cluster]'"
        ) from error
    try:
        executor = submitit.AutoExecutor(folder=sweep.path / "cluster", cluster=cluster)
        executor.update_parameters(**{"name": "rankscope", "tasks_per_node": 1, **parameters})
    except (RuntimeError, ValueError, TypeError, NameError) as error:
        raise ConfigError(f"--cluster {cluster}: {error}") from error
    pending = []
    for setting, repeat in todo:
        run = sweep.run(setting.number, repeat)
        job = executor.submit(run_in_job, launch.words(setting, run), str(run), setting.number, repeat)
        sweep.log(run).touch()  # reserves the name
        pending.append((job, setting, repeat))
    say(f"{len(pending)} jobs submitted; Ctrl-C cancels those that have not ended")
    while pending and stop.signal is None:
        for entry in [entry for entry in pending if entry[0].done()]:
            pending.remove(entry)
            job, setting, repeat = entry
            failure = job.exception()
            ended = sweep.ended().get((setting.number, repeat))
            outcome = told_of(ended, sweep) if ended and not failure else f"not run to its end: {_first_line(failure)}"
            say(f"{setting.name}, run {repeat}, job {job.job_id}: {outcome}")
        if pending:
            time.sleep(_POLL_S)
    for job, _, _ in pending:
        job.cancel()


def _first_line(failure: BaseException | None) -> str:
    lines = str(failure).strip().splitlines()
    return lines[0][:200] if lines else type(failure).__name__


def run_in_job(words: Sequence[str], run: str, setting: int, repeat: int) -> int:
    """Run one run, on a node of a job. The first node notes its end.

    Returns:
        Its exit code.
    """
    import submitit

    here = submitit.JobEnvironment()
    folder, sweep = Path(run), SweepDir(Path(run).parent)
    own = with_rendezvous(words, here.hostnames, here.job_id) if here.num_nodes > 1 else list(words)
    log = sweep.log(folder) if not here.global_rank else sweep.path / f"{folder.name}.node_{here.global_rank}.log"
    begun = time.monotonic()
    with Stop().watching() as stop:
        code = run_command(command("rankscope", *own), log, stop)
    if not here.global_rank and stop.signal is None:
        seconds = round(time.monotonic() - begun, 3)
        sweep.note(
            SweepJob(
                setting=setting,
                repeat=repeat,
                folder=folder.name,
                exit_code=code,
                seconds=seconds,
                host=socket.gethostname(),
            )
        )
    return code


def with_rendezvous(words: Sequence[str], hosts: Sequence[str], job: str) -> list[str]:
    """Return the words of a run on several nodes, whose rendezvous is on the first one. Flags of the user come later
    and take precedence."""
    first, *rest = words
    meet = [f"--nnodes={len(hosts)}", f"--rdzv-id={job}", "--rdzv-backend=c10d", f"--rdzv-endpoint={hosts[0]}:{_PORT}"]
    return [first, *meet, *rest]
