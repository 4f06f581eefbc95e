"""Determine which rank of the job this process is, and ensure that only one process counts as that rank.

If a launcher starts one process per rank, its environment variables state the rank. Otherwise a process below
``rankscope exec`` may be a launcher, a worker of a data loader, a compiler, or a rank that is assigned its number later
(mp.spawn, Lightning, Ray). It is taken for a rank when it counts steps, and its process group states which one. Steps
before the process group exists do not belong to the job and are not counted. A process without any process group is a
job of one rank, and is taken for that when its first window is near.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
import torch.distributed as dist

from rankscope.agent.process.exec_again import survive_exec
from rankscope.agent.process.guard import keep_message
from rankscope.agent.process.record import process_record
from rankscope.procfs import running_since
from rankscope.rank_identity import Identity, identity_from, started_process
from rankscope.records.rank import RankRecord
from rankscope.records.spec import AgentSpec
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import ENV_SPEC, Spool

__all__ = ["Membership"]

_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
_JOB, _OTHER_JOB = "job", "other_job"
"""Notices: what the ranks of the recorded job have in common, and that another job was seen."""


class Membership:
    """This process's place in the job.

    Args:
        spec: of the run.
        spool: of this node.
        environ: environment of this process.
        certain: whether the launcher that started this process set its variables for this rank.
        withdraw: restores the environment that started the agent, since children of a rank are no ranks.
    """

    def __init__(
        self,
        spec: AgentSpec,
        spool: Spool,
        environ: Mapping[str, str],
        *,
        certain: bool,
        withdraw: Callable[[], None] | None = None,
    ) -> None:
        self._withdraw = withdraw
        self._spec = spec
        self._spool = spool
        self._identity = identity_from(environ)
        self.process: RankRecord | None = None
        """The record of this rank's process; None until the rank is known."""
        self.several_nodes = spec.reaches_other_nodes or (self._identity is not None and self._identity.several_nodes)
        self._lone = False
        """Whether it was taken for a job of one rank, since no launcher and no process group say anything."""
        self.is_first_of_node = False
        """Whether it was the first rank of its node to claim its rank. Local rank 0 does not identify it, since several
        processes of a node may have local rank 0."""
        self._restarts = _number(environ.get(_RESTARTS))
        self._earlier = spool.earlier_attempts()
        if certain and self._identity is not None and self._identity.world_size is not None:
            self._be(self._identity.rank, self._identity.world_size, self._identity)

    def settle(self, completed: int) -> bool:
        """Determine which rank this process is.

        Args:
            completed: steps counted so far, since the process group exists.

        Returns:
            Whether the rank is known. It is known at once with a process group, and without one when the first window
            is near.
        """
        if self.process is not None:
            return True
        group = _group()
        # Lightning and Ray set their variables in the running process
        now = identity_from(os.environ) or self._identity
        if group is None:
            window = self._spec.schedule.window(0)
            if window is not None and completed + self._spec.agreement_lead + 1 < window.warm:
                return False
            group = (now.rank, now.world_size) if now is not None and now.world_size else (0, 1)
            self._lone = now is None or not now.world_size
            now = now if group != (0, 1) else None
        if now is not None:
            self.several_nodes = self.several_nodes or now.several_nodes
        self._be(*group, now)
        survive_exec(os.environ)
        if self._withdraw is not None and ENV_SPEC in os.environ:
            self._withdraw()
        return True

    @property
    def in_group(self) -> bool:
        """Whether there is a process group."""
        return _group() is not None

    def other_group(self) -> str | None:
        """Return a message if the process group states another rank than this process was taken for; else None."""
        group, process = _group(), self.process
        if process is None or group is None or process.world_size != 1 or group == (process.rank, process.world_size):
            return None
        return f"a process group came after the first steps: this is rank {group[0]} of {group[1]}"

    def claim(self) -> bool:
        """Claim the rank. Of several processes with one rank, the first to complete a step gets it.

        A shell wrapper may start several processes with the variables of one rank. Also determines the attempt of the
        job: one has ended when its ranks have exited. torchrun counts only restarts after a failure, not those after a
        node has joined or left.
        """
        process = self.process
        if process is None:
            return False
        with _locked(self._spool):
            process.attempt = max(self._restarts or 0, self._attempt(process.rank))
            if not self._is_of_the_job(process):
                return False
            try:
                path = self._spool.owner(process.attempt, process.rank)
                handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            except FileExistsError:
                if self._lone:
                    self._tell_of_another_job(process)
                return False
            except OSError as error:  # no space for the file: then no other process can create it either
                keep_message(f"the rank could not be claimed in {self._spool.path}: {error}")
            else:
                with os.fdopen(handle, "w") as stream, contextlib.suppress(OSError):
                    pid = self._owner_pid(process.pid)
                    stream.write(f"{pid} {running_since(Path('/proc', str(pid)))}")
            self.is_first_of_node = self._elected(process)
        return True

    def other_jobs(self) -> None:
        """Keep a message if processes of other jobs were refused."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                keep_message(self._spool.notice(self.process.attempt, _OTHER_JOB).read_text(encoding="utf-8"))

    def release(self) -> None:
        """Give the rank up: this process goes on as another program, whose steps are an attempt of their own."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                replace_text(self._spool.owner(self.process.attempt, self.process.rank), "0 0")

    def records(self, chosen: str) -> bool:
        """Return whether this rank is one of ``capture.ranks``: ``all``, ``first-of-node``, or their numbers."""
        if chosen in ("all", "first-of-node"):
            return chosen == "all" or self.is_first_of_node
        return self.process is not None and str(self.process.rank) in chosen.split(",")

    def _owner_pid(self, pid: int) -> int:
        """The process with which this rank's part in the attempt ends: a wrapper may start one script after another."""
        if self._restarts is None or self._identity is None:
            return pid
        with contextlib.suppress(OSError, ValueError, IndexError):
            return started_process(self._identity)
        return pid

    def _is_of_the_job(self, process: RankRecord) -> bool:
        """Return whether this process belongs to the job of which the first rank of this attempt was: a script may run
        two jobs at the same time, both with a rank 0. Values that are not set tell nothing."""
        own = [
            "" if self._lone else str(process.world_size),
            os.environ.get("MASTER_PORT", ""),
            os.environ.get("TORCHELASTIC_RUN_ID", ""),
        ]
        path = self._spool.notice(process.attempt, _JOB)
        with contextlib.suppress(OSError, ValueError):
            if not path.exists():
                replace_text(path, json.dumps(own))
            elif any(a != b for a, b in zip(own, json.loads(path.read_text(encoding="utf-8")), strict=True) if a and b):
                self._tell_of_another_job(process)
                return False
        return True

    def _tell_of_another_job(self, process: RankRecord) -> None:
        with contextlib.suppress(OSError):
            replace_text(
                self._spool.notice(process.attempt, _OTHER_JOB),
                f"another job ran below the same command at the same time, and is not recorded: process {process.pid} "
                f"is rank {process.rank} of {process.world_size}, too. Start each job by a `rankscope exec` of its own",
            )

    def _elected(self, process: RankRecord) -> bool:
        path = self._spool.notice(process.attempt, "first_of_node")
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return True
        return False

    def _attempt(self, rank: int) -> int:
        owners: dict[int, dict[int, bool]] = {}
        for path in self._spool.path.glob("owner_*_*"):
            attempt, owned = (int(word) for word in path.name.split("_")[1:])
            owners.setdefault(attempt, {})[owned] = _is_running(path)
        if not owners:
            return self._earlier
        last = max(owners)
        over = not any(owners[last].values()) or owners[last].get(rank) is False
        return last + 1 if over else last

    def _be(self, rank: int, world_size: int, now: Identity | None) -> None:
        unfinished = "the process did not report its exit: it was killed, called os._exit, or is still running"
        local_rank = now.local_rank if now is not None else None
        first = max(self._restarts or 0, self._earlier)
        self.process = process_record(rank, world_size, local_rank, first, "partial", unfinished)
        self.process.torch_version = str(torch.__version__)


def _group() -> tuple[int, int] | None:
    """Rank and size of the default process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return None


def _number(word: str | None) -> int | None:
    return int(word) if word is not None and word.isascii() and word.isdigit() else None


def _is_running(owner: Path) -> bool:
    """Return whether the process that owns a rank still runs; True if that cannot be determined."""
    try:
        pid, begun = owner.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return True
    return running_since(Path("/proc", str(int(pid)))) == begun


@contextlib.contextmanager
def _locked(spool: Spool) -> Iterator[None]:
    """Hold a lock that one rank of the node has at a time. Where files cannot be locked, O_EXCL alone decides."""
    handle = None
    with contextlib.suppress(OSError):
        handle = os.open(spool.claim_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
