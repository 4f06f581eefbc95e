"""``rankscope gather``: place what a job had to leave in a spool, once the run directory can be written.

After a store was full or did not answer, its files can be gathered later. The modules that work at the end of a job do
this too; here a user waits for them, and no part of a job does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.errors import ConfigError, ForeignFileError, RunDirError
from rankscope.node.finish import finish_again
from rankscope.node.gathering.disk_limits import DiskLimits
from rankscope.node.gathering.gather import Gatherer, own_record
from rankscope.node.gathering.holding import Holding
from rankscope.node.gathering.leftovers import discard, left_in_words, remove_unannounced
from rankscope.node.gathering.placing import Placing
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.node.kept_traces import decision
from rankscope.node.manifest import NodeResult
from rankscope.node.mirroring import Mirroring, mirroring_of
from rankscope.node.run_claim import claim_run
from rankscope.node.state import NodeState
from rankscope.records.codec import to_json
from rankscope.records.running.node_task import JobEnd, NodeTask
from rankscope.records.spec import AgentSpec
from rankscope.rundir.claim import NodeClaim
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.rundir.spool import Spool

__all__ = ["Gathered", "gather_later"]

_POLL_S = 0.1
_ENDS_WITHIN_S = 3.0


@dataclass(frozen=True, slots=True)
class Gathered:
    """Result of gathering a spool."""

    run_dir: RunDir
    place: str
    """The run directory as the user names it: a folder or a URL."""
    ended: bool
    """Whether it has a run.json, so that a report can be made."""
    windows: int
    """Number of window records that were placed now."""
    left: str
    """What stays in the spool, why and where; if empty, the spool is gone."""
    notes: list[str] = field(default_factory=list)
    """Further remarks."""


def gather_later(folder: Path, to: Path | None = None, *, moved: Callable[[int], None] = lambda _: None) -> Gathered:
    """Place the contents of a spool, update the result of its node and run.json, and remove the spool.

    Args:
        folder: the spool.
        to: a run directory to use instead of the job's.
        moved: called with each number of bytes that was handled.

    Raises:
        ConfigError: ``folder`` is not a spool.
        RunDirError: its job or its helper still runs, or the run directory cannot be used.
    """
    spool = Spool(folder.resolve())
    try:
        task, spec = read_record(NodeTask, spool.task), read_record(AgentSpec, spool.spec)
    except ForeignFileError as error:
        raise ConfigError(
            f"{folder} is no spool ({error}); name the folder that `rankscope run` said at its end"
        ) from error
    with _alone(spool), _privately():
        state = NodeState(spool)
        where = mirroring_of(spool, task, elsewhere=to is not None)
        granted = _claim(spool, state, task, where, to)
        run_dir = RunDir(Path(granted.run_dir))
        placing = Placing(run_dir, task.encrypt, granted.node)
        gatherer, step_logs = Gatherer(spool, run_dir, moved=moved, placing=placing), StepLogDrain(spool, state.note)
        windows = len(gatherer.gather(last=True))
        holding = Holding(spool, run_dir, placing, DiskLimits(), moved)
        windows += holding.settle(decision(run_dir))
        gatherer.gather_out_of_memory()
        step_logs.finish(run_dir, placing)
        for gone in remove_unannounced(spool):
            state.note(f"{granted.node}: {gone}")
        why, notes = {**gatherer.left, **holding.left, **step_logs.left}, list[str]()
        try:
            where.pull()
            notes = _tell(spool, state, task, spec, granted, gatherer)
        except OSError as error:
            why[""] = f"{run_dir.path} could not be written: {error.strerror or error}"
        if not where.push(last=True):
            why[""] = where.left
        words, ended = left_in_words(spool, why) if why else "", run_dir.ended
        if not words:
            where.close()
        where.end()
        if not words and not discard(spool):
            words = left_in_words(spool, {})
        place = where.url or str(run_dir.path)
        return Gathered(run_dir=run_dir, place=place, ended=ended, windows=windows, left=words, notes=notes)


@contextlib.contextmanager
def _alone(spool: Spool) -> Iterator[None]:
    """Act as the helper of this spool's node, after checking that no process writes into it any more."""
    try:
        lock = os.open(spool.helper_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RunDirError(
            f"{spool.path} cannot be used: {error.strerror}; are you the one who started the job?"
        ) from error
    try:
        if not _locked(lock):
            raise RunDirError(
                f"the node helper still works on {spool.path}, or hangs in a store that does not answer; "
                "ask again when it has ended"
            )
        for path in spool.process_records():
            process = own_record(path)
            if process is not None and _has_open(process.pid, spool.step_ring(process.attempt, process.rank)):
                raise RunDirError(
                    f"rank {process.rank} still writes into {spool.path}; ask again when its job has ended"
                )
        yield
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    """Return whether this process is the only helper now. One that has reported its end takes a moment to exit."""
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_POLL_S)
            continue
        except OSError:
            pass  # a file system without locks
        return True
    return False


def _has_open(pid: int, step_log: Path) -> bool:
    """Return whether a process has its step log open. The process id alone is not sufficient, because it may have been
    reused."""
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if descriptor.readlink() == step_log:
                    return True
    return False


@contextlib.contextmanager
def _privately() -> Iterator[None]:
    """Create files with the helper's permissions: for the owner only, or for a group that shares the runs."""
    theirs = os.umask(0o077)
    try:
        if not theirs & 0o020:
            os.umask(0o007)
        yield
    finally:
        os.umask(theirs)


def _claim(spool: Spool, state: NodeState, task: NodeTask, where: Mirroring, to: Path | None) -> NodeClaim:
    """Return the place that the node had in its run, or one in the directory that is named now."""
    earlier = state.claimed()
    if earlier is not None and (to is None or RunDir(Path(earlier.run_dir)).path == to.absolute()):
        if not Path(earlier.run_dir).is_dir():
            raise RunDirError(f"{earlier.run_dir} is not there; mount it, or name another folder with --run-dir")
        return earlier
    granted = claim_run(spool, task, where, to, patient=False)
    state.claims(granted)
    return granted


def _tell(
    spool: Spool, state: NodeState, task: NodeTask, spec: AgentSpec, granted: NodeClaim, gatherer: Gatherer
) -> list[str]:
    """Update the node's result and run.json, which belong to this run and were written while these files were
    missing."""
    run_dir = RunDir(Path(granted.run_dir))
    path = run_dir.node_result(granted.node)
    before: NodeResult | None = None
    if path.exists():
        with contextlib.suppress(ForeignFileError):
            before = read_record(NodeResult, path, run_limit(run_dir))
    notes = [note for note in (before.notes if before is not None else state.notes()) if str(spool.path) not in note]
    notes.append(f"{granted.node}: what its ranks recorded was gathered later, by `rankscope gather`")
    own = NodeResult(
        node=granted.node,
        host=socket.gethostname(),
        lives=[process for path in spool.process_records() if (process := own_record(path)) is not None],
        records=gatherer.records(),
        notes=list(dict.fromkeys(notes)),
        exit_code=before.exit_code if before is not None else _job_end(spool).exit_code,
        files={**(before.files if before is not None else {}), **gatherer.placing.sums},
    )
    gatherer.placing.again(path, to_json(own))
    return finish_again(task, spec, granted, own)


def _job_end(spool: Spool) -> JobEnd:
    try:
        return read_record(JobEnd, spool.job_end)
    except ForeignFileError:
        return JobEnd()
