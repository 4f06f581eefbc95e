"""State machine of one rank: counts steps, opens and closes windows at step boundaries, writes the rank's records.

A step is counted where its end is seen, in whatever thread. What is due then, such as to open or close a window, is
done there as well if that is the training thread outside of backward, else at the next such point (see
:mod:`rankscope.agent.process.safe_point`). Between windows a step costs one write of its time and one look for notices.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path

from rankscope.agent.answers import Listener
from rankscope.agent.backends.base import Capture, detailed, device_in_use
from rankscope.agent.backends.memory_history import MemoryHistory, watch_out_of_memory
from rankscope.agent.carriers.base import Post
from rankscope.agent.carriers.table import choose_carrier
from rankscope.agent.membership import Membership
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.agent.process.exit import ExitHandler
from rankscope.agent.process.guard import guarded, said, tell
from rankscope.agent.process.safe_point import CompiledFrames, after_backward, in_backward
from rankscope.agent.process.skip_destructors import skip_destructors
from rankscope.agent.process.training_thread import TrainingThread
from rankscope.agent.process.user_profiler import UserProfilerWatch
from rankscope.agent.signals.table import all_signals
from rankscope.agent.starting import Starting
from rankscope.agent.steps.counter import StepCounter
from rankscope.agent.steps.detectors import install_detectors
from rankscope.agent.steps.occasions import watch_occasions
from rankscope.agent.steps.step_times import StepTimes
from rankscope.agent.windows.agreement import Agreement
from rankscope.agent.windows.making_way import MakingWay
from rankscope.agent.windows.notices import Notices
from rankscope.agent.windows.recording import Recording, device_name, new_record
from rankscope.capture_backends import load_capture, resolve
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.records.running.hang import RankAnswer
from rankscope.records.spec import AgentSpec, CaptureSpec, Window
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["Session", "user_step"]

_session: Session | None = None


def user_step() -> None:
    """What ``rankscope.step()`` does in a profiled rank."""
    if _session is not None:
        _session.signal("user")


class Session:
    """The state of the agent. One per process, made by :meth:`begin`."""

    def __init__(self, spec: AgentSpec, environ: dict[str, str], *, certain: bool = True) -> None:
        self.spec = spec
        self.spool = Spool(Path(spec.spool))
        self._member = Membership(spec, self.spool, environ, certain=certain)
        self._signals = all_signals()
        self.counter = StepCounter(self.step_completed, spec.step_source, self._signals)
        self.signal: Callable[[str], None] = lambda _kind: None
        self._environ = environ
        self._detaching = CuptiTeardown()
        self._foreign = UserProfilerWatch(self._is_ours, self._stand_aside)
        self._ending = ExitHandler(guarded(self._end), spec.exit_grace_s)
        self._history = MemoryHistory()
        self._thread = TrainingThread()
        self._times = StepTimes(self._thread)
        self._listener: Listener | None = None
        self._in_group = False
        self._changes = 0
        self._better: str | None = None
        self._due = False
        self._waits_for_backward = False
        self._way = MakingWay()
        self._failed: Exception | None = None
        self._compiled = CompiledFrames()
        self._recording: Recording | None = None

    @classmethod
    def begin(cls, spec: AgentSpec, *, certain: bool = True) -> None:
        """Arm this process: detectors, the watch over other profilers, the end of the process.

        Args:
            spec: what to record.
            certain: this process was started as a rank, see :class:`Membership`.
        """
        global _session  # noqa: PLW0603 - the process has one training loop and one profiler
        _session = session = cls(spec, dict(os.environ), certain=certain)
        session._write_life()
        session.signal = install_detectors(
            session.counter, session._times.fetched, session._graph_begins, session.between_steps,
            session._times.phase, session._signals, session._times.graph_ends,
        )  # fmt: skip
        watch_occasions(session._times.happened)
        if session._member.life is not None and spec.hang_after_s > 0:
            Starting(session.spool.stage(session.life.attempt, session.life.rank), session._listen).watch()
        session._foreign.install()
        session._history.install()
        with contextlib.suppress(Exception):  # the window that needs it reports what is wrong
            load_capture(resolve(spec.capture.backend)[0])  # imported now, so that no step has to wait for it
        os.register_at_fork(after_in_child=guarded(_forked))

    # ------------------------------------------------------------ at every step

    def step_completed(self, completed: int) -> None:  # noqa: ARG002 - StepCounter.completed says more: the last
        """A step has ended, and the next begins. Called where that is seen, in any thread."""
        if _session is not self:
            return
        try:
            self._count_step()
        except Exception as error:
            self._fail(error)

    def _count_step(self) -> None:
        # The hooks of a backward run in threads of autograd. What else comes from another thread does not train.
        if not in_backward() and not self._thread.claim():
            return
        if not self._times.begun and not self._first_step():
            return
        self._time_step()
        if self.counter.changes != self._changes:
            self._recount()
        self._due = True
        self.between_steps()

    def between_steps(self, *, trained: bool = False) -> None:
        """The script may be outside of everything here. Do what is due, if that is so.

        Args:
            trained: a backward has returned. Where all steps so far ended in hooks, this tells which thread trains.
        """
        recording = self._recording
        if not self._due:
            if recording is None or not recording.started:
                return
            if not self._way.is_asked and recording.overdue() is None:
                return
        if _session is not self:
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
            self._advance(self.counter.completed, due)
        except Exception as error:
            self._fail(error)

    def _advance(self, completed: int, stepped: bool) -> None:
        """Open, go on with or close a window. In the training thread, outside of backward."""
        recording = self._recording
        if self._better is not None:
            better, self._better = self._better, None
            if recording is not None and recording.started:
                self._close(better, completed)
            elif recording is not None:
                self._recording = None
                recording.cancel(better)
        elif recording is None:
            self._ending.release()
            self._before_window(completed)
        elif self._way.is_asked:
            self._close_for_another()
        elif not recording.started:
            if completed >= recording.window.first:
                self._start(recording, completed)
        elif recording.has_ended(completed):
            if stepped and recording.drained(at_once=self._agreement.plan_comes(completed)):
                self._close(None, completed)
        elif (overdue := recording.overdue()) is not None:
            self._close(overdue, completed)
        elif recording.capture is not None and stepped:
            recording.capture.mark(completed)

    def _fail(self, error: Exception) -> None:
        """After an unexpected error: record nothing any more, and leave no profiler on."""
        tell(f"recording failed and is switched off; training goes on: {error!r}")
        if self._recording is not None and (in_backward() or not self._thread.is_this()):
            self._failed, self._due = error, True  # a profiler is ended where it was begun
            return
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.cancel(f"recording failed: {error!r}")
        self._write_life()
        _disarm()

    def _first_step(self) -> bool:
        """This process trains: is it known which rank it is, and is it the one process that is?"""
        if self._member.in_group and not self._in_group:
            self._in_group = True
            if self._member.life is None:
                self.counter.restart()  # steps before were no steps of the job
        if not self._member.settle(self.counter.completed):
            return False
        if not self._member.claim():
            _disarm()
            return False
        life = self.life
        self._board = Notices(self.spool, life.attempt)
        carrier = choose_carrier(
            Post(self.spec.run_id, life.attempt, life.rank, self._board, self._environ),
            several_nodes=self._member.several_nodes, carries=life.rank == 0 or self._member.is_first_of_node,
        )  # fmt: skip
        self._agreement = Agreement(
            self.spec, life.rank, self._board, self._times.pace, carrier.heard_within_s, self.counter.source or ""
        )
        self._times.begin(self.spool.pulse(life.attempt, life.rank), device=self.spec.device_events)
        self._listen()
        self._ending.end_with_multiprocessing()
        if self.spec.capture.memory_snapshot:
            path = self.spool.out_of_memory(life.attempt, life.rank)
            watch_out_of_memory(path, rank=life.rank, attempt=life.attempt)
        self._write_life()
        return True

    def _listen(self) -> None:
        """Be ready to be asked where this rank stands: since its process group is there, at its first step at last."""
        if _session is not self or self.spec.hang_after_s <= 0:
            return
        life = self.life
        question = self.spool.question(life.attempt, life.rank)
        if self._listener is None or self._listener.question != question:
            listener = Listener(question, self.spool.answer(life.attempt, life.rank), self._where)
            self._listener = listener if listener.begin() else self._listener

    @property
    def life(self) -> RankRecord:
        """The record of this rank's life, once its rank is known."""
        if self._member.life is None:
            raise RuntimeError("this process is no rank so far")
        return self._member.life

    def _where(self) -> tuple[RankAnswer, int | None]:
        """What is known of a rank that is asked where it is, in a thread that does not train."""
        answer = RankAnswer(
            rank=self.life.rank, attempt=self.life.attempt, token=0, time_ns=0, steps=self.counter.completed,
            part=self._times.part,
        )  # fmt: skip
        return answer, self._thread.ident or threading.main_thread().ident

    def _recount(self) -> None:
        """A better signal has taken over, and counts from 1."""
        self._changes = self.counter.changes
        self._better = f"from here on steps are counted by {self.counter.source}, which is trusted more"
        self._agreement.recount(self.counter.source or "")
        self._times.pace.forget()

    def _time_step(self) -> None:
        recording = self._recording
        elapsed_ms, paused_ms = self._times.step(recorded=recording is not None)
        if elapsed_ms == 0:
            return
        if recording is not None:
            if recording.started and not recording.has_ended(self.counter.completed - 1):
                recording.took(elapsed_ms, paused_ms)
            return
        slowness = self._times.pace.add(elapsed_ms)
        if 0 < self.spec.budget.slow_step < slowness:
            self._board.post("slow_step")

    def _before_window(self, completed: int) -> None:
        if self._agreement.due(completed) and self._compiled.ended():
            self._open(completed)

    # ------------------------------------------------------------ a window

    def _open(self, completed: int) -> None:
        window, plan = self._agreement.take()
        spec = detailed(self.spec.capture, window.detail)
        history = self._history if spec.memory_snapshot else None
        record = new_record(self.life, window, plan)
        recording = Recording(window, record, self.spool, self.spec, history)
        record.step_source, record.steps_counted = self.counter.source, completed
        record.step_trust = self.counter.trust
        if not self._member.records(self.spec.capture.ranks):
            chosen = f"not among the ranks that record (capture.ranks={self.spec.capture.ranks})"
            recording.give_up(chosen, status="skipped")
        elif completed > window.first:
            recording.give_up(f"this window was announced at step {completed}, after its first step {window.first}")
        elif self._foreign.active:
            recording.give_up("the script's own torch.profiler was active; two at once would crash the job")
        else:
            self._record(recording, completed, spec)

    def _record(self, recording: Recording, completed: int, spec: CaptureSpec) -> None:
        self._ending.guard()
        self._recording = recording  # from here on it is ended, whatever happens
        if not recording.open(self._maker(recording.window, spec), self._times.pace.recent_ms):
            self._recording = None
            return
        if completed >= recording.window.first:
            self._start(recording, completed)
        self._write_life()

    def _maker(self, window: Window, spec: CaptureSpec) -> Callable[[], Capture]:
        """How this window is recorded."""

        def make() -> Capture:
            self._detaching.finish()  # of the window before
            capture: Capture = load_capture(window.backend)(spec, self._detaching)
            return capture

        return make

    def _start(self, recording: Recording, completed: int) -> None:
        recording.start(completed, self._agreement.confirmed)
        self._drop_if_over()

    def _drop_if_over(self) -> None:
        if self._recording is not None and self._recording.capture is None:
            self._recording = None

    def _close(self, reason: str | None, completed: int, *, leaving: bool = False) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            self._agreement.closed(completed)
            reason = None if recording.has_ended(completed) else reason
            recording.close(reason, completed, self.counter.source, leaving=leaving)
            self._compiled.note()
            self._times.pace.forget()

    # ------------------------------------------------------------ other profilers, forks, the end

    def _is_ours(self, profile: object) -> bool:
        recording = self._recording
        return recording is not None and recording.capture is not None and recording.capture.owns(profile)

    def _stand_aside(self) -> None:
        """The user's profiler is about to be prepared: ours must have ended by then."""
        self._detaching.stay()
        if self._recording is not None and self._thread.is_this():
            self._close_for_another()
        elif self._recording is not None:
            self._way.ask()
        self._detaching.finish()

    def _close_for_another(self) -> None:
        reason = "the script's own torch.profiler started inside this window, which ended for it"
        recording = self._recording
        if recording is not None and recording.capture is not None and self._way.too_late:
            self._recording = None  # libkineto is the script's: to end ours now would end its profile, or the process
            recording.capture.leave()
            recording.give_up("the script's own torch.profiler began in another thread and did not wait any longer")
            _disarm()  # what ours keeps in this thread cannot be taken away
        elif recording is not None and recording.started:
            self._close(reason, self.counter.completed)
        elif recording is not None:
            self._recording = None
            recording.cancel(reason)
        self._way.answer()

    def forked(self) -> bool:
        """This is a forked child: may it be a rank of its own? Then it begins anew."""
        if self._member.life is not None:
            return False
        self._thread.forget()
        self._in_group = False
        self.counter.restart()
        return True

    def left_in_child(self) -> None:
        """This is a forked child."""
        if self._recording is not None and self._recording.capture is not None:
            self._recording.capture.leave()

    def _graph_begins(self) -> None:
        """A CUDA graph is about to be captured. The first one waits until the teardown of CUPTI has finished."""
        self._times.graph_begins()
        if _session is not self:
            return
        first = self._detaching.graph()
        if first and self._recording is None and self._thread.is_this():
            self._detaching.finish()

    def _end(self, reason: str | None) -> None:
        """The process ends. Called once, by :class:`ExitHandler`."""
        if _session is not self or self._member.life is None:
            return
        completed = self.counter.completed
        recording = self._recording
        if recording is not None and recording.started:
            unfinished = f"the job ended in step {completed}; the window was to end with step {recording.window.last}"
            self._close(reason or unfinished, completed, leaving=True)
        elif recording is not None:
            self._recording = None
            recording.cancel(reason or "the job ended during the warm-up of this window")
        if not self._detaching.close():
            skip_destructors()
        if self._listener is not None:
            self._listener.close()
        self._times.close()
        self.life.status, self.life.reason = ("ok", None) if reason is None else ("partial", reason)
        self.life.steps.after_ms = self._times.pace.recent_ms
        self._write_life()

    def leave(self) -> None:
        """Recording ends before the process does. In the training thread."""
        self._ending.run_now()
        _disarm()

    def _write_life(self) -> None:
        if self._member.life is None:
            return
        if not self._thread.known and self.spool.owner(self.life.attempt, self.life.rank).exists():
            return  # another process of this rank trains
        self.life.steps_counted, self.life.step_source = self.counter.completed, self.counter.source
        self.life.step_trust = self.counter.trust
        self.life.notes = said()
        self.life.device = device_name(device_in_use())
        self.life.open_window = self._recording.window.number if self._recording is not None else None
        try:
            replace_text(self.spool.life(self.life.attempt, self.life.rank), to_json(self.life))
        except OSError as error:
            tell(f"the record of this rank's life could not be written: {error}")


def end() -> None:
    """What ``close()`` of :func:`rankscope.attach` does: this process is recorded no longer."""
    if _session is not None:
        _session.leave()


def _forked() -> None:
    """In a forked child, which does not train and in which nothing shall record."""
    session = _session
    if session is not None and session.forked():
        return  # nobody knows its rank yet, and this process may be one (torch.multiprocessing, notebook launchers)
    _disarm()
    if session is not None:
        session.left_in_child()


def _disarm() -> None:
    """This process is not the training process (any more): forked children, and further processes of a rank."""
    global _session  # noqa: PLW0603 - see Session.begin
    _session = None
