"""State machine of one rank: counts steps, opens and closes windows at step boundaries, writes the rank's records.

A step is counted where its end is observed, in any thread. Actions that are due at a step boundary, such as opening or
closing a window, are taken there too if that is the training thread outside of backward, else at the next such point
(see :mod:`rankscope.agent.process.safe_point`). Between windows a step costs four time stamps and a look for notices.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path

from rankscope.agent.answers import Listener
from rankscope.agent.backends.base import device_in_use
from rankscope.agent.backends.call_notes import recorded_calls
from rankscope.agent.backends.memory_history import watch_out_of_memory
from rankscope.agent.carriers.base import Post
from rankscope.agent.carriers.table import choose_carrier
from rankscope.agent.latest import latest_numbers
from rankscope.agent.membership import Membership
from rankscope.agent.process.exec_again import before_exec
from rankscope.agent.process.exit import ExitHandler
from rankscope.agent.process.guard import guarded, keep_message, kept_messages
from rankscope.agent.process.safe_point import after_backward, in_backward
from rankscope.agent.process.skip_destructors import skip_destructors
from rankscope.agent.process.training_thread import TrainingThread
from rankscope.agent.script_calls import ScriptCalls
from rankscope.agent.signals.table import all_signals
from rankscope.agent.startup_stages import StartupStages
from rankscope.agent.steps.counter import StepCounter
from rankscope.agent.steps.detectors import install_detectors
from rankscope.agent.steps.occasions import watch_occasions
from rankscope.agent.steps.step_times import StepTimer
from rankscope.agent.trackers.follow import TrackerLog
from rankscope.agent.trackers.table import TRACKERS
from rankscope.agent.windows.agreement import Agreement
from rankscope.agent.windows.notices import Notices
from rankscope.agent.windows.rank_windows import RankWindows
from rankscope.agent.windows.recording import device_name, device_uuid
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.records.running.hang import RankAnswer
from rankscope.records.spec import AgentSpec
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["Session", "latest", "user_step"]

_session: Session | None = None


def user_step() -> None:
    """Count a step; called by ``rankscope.step()`` in a profiled rank."""
    if _session is not None:
        _session.signal("user")


def latest() -> dict[str, float] | None:
    """Return the key numbers of the job; called by ``rankscope.latest()`` in a profiled rank."""
    return latest_numbers(_session.spool.live, _session.script.described) if _session is not None else None


class Session:
    """The state of the agent. One per process, created by :meth:`begin`."""

    def __init__(
        self,
        spec: AgentSpec,
        environ: dict[str, str],
        *,
        certain: bool = True,
        withdraw: Callable[[], None] | None = None,
    ) -> None:
        self.spec = spec
        self.spool = Spool(Path(spec.spool))
        self._member = Membership(spec, self.spool, environ, certain=certain, withdraw=withdraw)
        self._signals = all_signals()
        self.counter = StepCounter(self.step_completed, spec.step_source, self._signals)
        self.signal: Callable[[str], None] = lambda _kind: None
        self._environ = environ
        self._ending = ExitHandler(guarded(self._end), spec.exit_grace_s)
        self._thread = TrainingThread()
        self._times = StepTimer(self._thread)
        self._windows = RankWindows(
            spec, self.spool, self.counter, self._thread, self._ending, self._times.step_time, _disarm
        )
        self._listener: Listener | None = None
        self._trackers: TrackerLog | None = None
        self.script = ScriptCalls(lambda: self.counter.completed, self._script_spoke)
        self._in_group = False
        self._changes = 0
        self._due = False
        self._waits_for_backward = False
        self._failed: Exception | None = None
        self._written: Path | None = None

    @classmethod
    def begin(cls, spec: AgentSpec, *, certain: bool = True, withdraw: Callable[[], None] | None = None) -> None:
        """Install the agent in this process: step detectors, the watch for other profilers, the exit handler.

        Args:
            spec: what to record.
            certain: whether this process was started as a rank, see :class:`Membership`.
            withdraw: see there.
        """
        global _session  # noqa: PLW0603 - the process has one training loop and one profiler
        _session = session = cls(spec, dict(os.environ), certain=certain, withdraw=withdraw)
        session._write_process_record()
        session.signal = install_detectors(
            session.counter, session._times.fetched, session._graph_begins, session.between_steps,
            session._times.phase, session._signals, session._times.graph_ends,
        )  # fmt: skip
        watch_occasions(session._times.happened)
        for name in spec.trackers:
            TRACKERS[name].watch()
        if session._member.process is not None and spec.hang_after_s > 0:
            StartupStages(session.spool.stage(session.process.attempt, session.process.rank), session._listen).watch()
        session._windows.install()
        session.script.install()
        os.register_at_fork(after_in_child=guarded(_forked))
        before_exec(session.replaced)

    # ------------------------------------------------------------ at every step

    def step_completed(self, completed: int) -> None:  # noqa: ARG002 - StepCounter.completed says more: the last
        """Handle the end of a step. Called where it is observed, in any thread."""
        if _session is not self:
            return
        try:
            self._count_step()
        except Exception as error:
            self._fail(error)

    def _count_step(self) -> None:
        # Hooks of a backward run in threads of autograd. Any other thread than the training thread does not train.
        if not in_backward() and not self._thread.claim():
            return
        if not self._times.begun and not self._first_step():
            return
        self._time_step()
        if self._trackers is not None and self._thread.is_this():
            self._trackers.look(self.counter.completed)
        if self.counter.changes != self._changes:
            self._changes = self.counter.changes
            self._windows.recounted()
        self._due = True
        self.between_steps()

    def between_steps(self, *, trained: bool = False) -> None:
        """Take the actions that are due, if this point is outside of backward and in the training thread.

        Args:
            trained: a backward has returned. If all steps so far ended in hooks, this identifies the training thread.
        """
        if (not self._due and not self._windows.presses) or _session is not self:
            return
        if in_backward():
            if not self._waits_for_backward:
                self._waits_for_backward = True
                after_backward(guarded(functools.partial(self.between_steps, trained=True)))
            return
        if not (self._thread.claim() if trained else self._thread.is_this()):
            return
        if self._failed is not None:
            self._fail(self._failed)
            return
        due, self._due = self._due, False
        try:
            self._windows.advance(self.counter.completed, stepped=due)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """After an unexpected error: stop recording for good, and leave no profiler active."""
        keep_message(f"recording failed and is switched off; training goes on: {error!r}")
        if self._windows.current is not None and (in_backward() or not self._thread.is_this()):
            self._failed, self._due = error, True  # a profiler must be stopped in the thread that started it
            return
        self._windows.cancel(f"recording failed: {error!r}")
        self._write_process_record()
        _disarm()

    def _first_step(self) -> bool:
        """At the first step: determine and claim the rank, and start to record it. Return False if it is unknown or
        taken."""
        if self._member.in_group and not self._in_group:
            self._in_group = True
            if self._member.process is None:
                self.counter.restart()  # earlier steps were not steps of the job
        if not self._member.settle(self.counter.completed):
            return False
        if not self._member.claim():
            _disarm()
            return False
        process = self.process
        self._notices = self.script.notices = Notices(self.spool, process.attempt)
        carrier = choose_carrier(
            Post(self.spec.run_id, process.attempt, process.rank, self._notices, self._environ),
            several_nodes=self._member.several_nodes, carries=process.rank == 0 or self._member.is_first_of_node,
        )  # fmt: skip
        agreement = Agreement(
            self.spec,
            process.rank,
            self._notices,
            self._times.step_time,
            carrier.heard_within_s,
            self.counter.source or "",
        )
        records = self._member.records(self.spec.capture.ranks)
        self._windows.begin(process, agreement, records=records, opened=self._write_process_record)
        ring = self.spool.step_ring(process.attempt, process.rank)
        self._times.begin(ring, device=self.spec.device_events, before=self.counter.completed - 1)
        self._times.read_calls(
            self.spool.call_times(ring), self.spec.calls_share, functools.partial(recorded_calls, fast=True)
        )
        if process.rank == 0 and self.spec.trackers:
            chosen = [TRACKERS[name] for name in self.spec.trackers]
            self._trackers = TrackerLog(chosen, functools.partial(latest_numbers, self.spool.live))
        self._listen()
        self._ending.end_with_multiprocessing()
        if self.spec.capture.memory_snapshot:
            path = self.spool.out_of_memory(process.attempt, process.rank)
            watch_out_of_memory(path, rank=process.rank, attempt=process.attempt)
        self._write_process_record()
        return True

    def _listen(self) -> None:
        """Start to answer questions about progress; from the creation of the process group on, at the latest from the
        first step on."""
        if _session is not self or self.spec.hang_after_s <= 0:
            return
        process = self.process
        question = self.spool.question(process.attempt, process.rank)
        if self._listener is None or self._listener.question != question:
            listener = Listener(question, self.spool.answer(process.attempt, process.rank), self._where)
            self._listener = listener if listener.begin() else self._listener

    @property
    def process(self) -> RankRecord:
        """The record of this rank's process, once its rank is known."""
        if self._member.process is None:
            raise RuntimeError("this process is no rank so far")
        return self._member.process

    def _where(self) -> tuple[RankAnswer, int | None]:
        """Return the progress of this rank and the identifier of its training thread; called in another thread."""
        self._times.flush()
        answer = RankAnswer(
            rank=self.process.rank, attempt=self.process.attempt, token=0, time_ns=0, steps=self.counter.completed,
            part=self._times.part,
        )  # fmt: skip
        return answer, self._thread.ident or threading.main_thread().ident

    def _time_step(self) -> None:
        window = self._windows.current
        elapsed_ms, paused_ms = self._times.step(recorded=window is not None)
        if elapsed_ms == 0:
            return
        if window is not None:
            if window.started and not window.has_ended(self.counter.completed - 1):
                window.took(elapsed_ms, paused_ms)
            return
        if self._times.asked:
            return  # longer by what the log itself has cost
        slowness = self._times.step_time.add(elapsed_ms)
        if 0 < self.spec.budget.slow_step < slowness:
            self._notices.post("slow_step")

    # ------------------------------------------------------------ CUDA graphs, forks, exit

    def forked(self) -> bool:
        """In a forked child: return whether it may be a rank of its own, and if so reset the state."""
        if self._member.process is not None:
            return False
        self._thread.forget()
        self._in_group = False
        self.counter.restart()
        return True

    def left_in_child(self) -> None:
        """In a forked child: release the windows of the parent."""
        self._windows.left_in_child()

    def _graph_begins(self) -> None:
        """Prepare for the capture of a CUDA graph. The first one waits until the teardown of CUPTI has finished."""
        self._times.graph_begins()
        if _session is self:
            self._windows.graph_begins()

    def _end(self, reason: str | None) -> None:
        """Finish because the process exits. Called once, by :class:`ExitHandler`."""
        if _session is not self or self._member.process is None:
            return
        if not self._windows.end(reason, self.counter.completed):
            skip_destructors()
        if self._listener is not None:
            self._listener.close()
        if self._trackers is not None:
            self._trackers.close()
        self._times.close()
        self._member.other_jobs()
        self.process.status, self.process.reason = ("ok", None) if reason is None else ("partial", reason)
        self.process.steps.after_ms = self._times.step_time.recent_ms
        self._write_process_record()

    def leave(self, reason: str | None = None) -> None:
        """End recording before the process exits. Called in the training thread."""
        self._ending.run_now(reason)
        _disarm()

    def replaced(self) -> None:
        """End recording before this process becomes another program, if it has made steps."""
        if _session is not self or not self._times.begun:
            return
        if self._thread.is_this():
            self.leave("the process replaced itself by another program")
        self._member.release()

    def _script_spoke(self) -> None:
        """Store what the script said. From another thread, it is stored when this record is next written."""
        if _session is self and self._times.begun and self._thread.is_this():
            self._write_process_record()

    def _write_process_record(self) -> None:
        if self._member.process is None:
            return
        if not self._thread.known and self.spool.owner(self.process.attempt, self.process.rank).exists():
            return  # another process of this rank trains
        self.process.steps_counted, self.process.step_source = self.counter.completed, self.counter.source
        self.process.step_trust = self.counter.trust
        self.process.notes = kept_messages()
        self.process.marks, self.process.described = list(self.script.marks), dict(self.script.described)
        device = device_in_use()
        self.process.device, self.process.device_uuid = device_name(device), device_uuid(device)
        window = self._windows.current
        self.process.open_window = window.window.number if window is not None else None
        path = self.spool.process_record(self.process.attempt, self.process.rank)
        try:
            replace_text(path, to_json(self.process))
            if self._written not in (None, path):  # since it has turned out which attempt this is
                self._written.unlink(missing_ok=True)
            self._written = path
        except OSError as error:
            keep_message(f"the record of this rank's life could not be written: {error}")


def end() -> None:
    """End recording in this process; called by ``close()`` of :func:`rankscope.attach`."""
    if _session is not None:
        _session.leave()


def _forked() -> None:
    """Disarm the agent in a forked child, which does not train and must not record."""
    session = _session
    if session is not None and session.forked():
        return  # its rank is not known yet, and this process may be one (torch.multiprocessing, notebook launchers)
    _disarm()
    if session is not None:
        session.left_in_child()


def _disarm() -> None:
    """Note that this process does not train (any more): a forked child, or a further process of a rank."""
    global _session  # noqa: PLW0603 - see Session.begin
    if _session is not None:
        _session.script.leave()
    _session = None
