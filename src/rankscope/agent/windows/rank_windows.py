"""The windows of one rank, each opened, continued and closed in the training thread, outside of all operators.

The session decides when to do so; see :mod:`rankscope.agent.session`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rankscope.agent.backends.base import Capture, detailed
from rankscope.agent.backends.memory_history import MemoryHistory
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.agent.process.exit import ExitHandler
from rankscope.agent.process.safe_point import CompiledFrames
from rankscope.agent.process.training_thread import TrainingThread
from rankscope.agent.process.user_profiler import UserProfilerWatch
from rankscope.agent.steps.counter import StepCounter
from rankscope.agent.windows.agreement import Agreement
from rankscope.agent.windows.recording import Recording, new_record
from rankscope.agent.windows.yield_request import YieldRequest
from rankscope.capture_backends import load_capture, resolve
from rankscope.records.rank import RankRecord
from rankscope.records.spec import AgentSpec, CaptureSpec, Window
from rankscope.rundir.spool import Spool
from rankscope.statistics.step_time import StepTimeEstimate

__all__ = ["RankWindows"]


class RankWindows:
    """The windows of one rank, of which at most one is open.

    Args:
        spec: what to record.
        spool: where files are left.
        counter: counter of the steps.
        thread: the training thread.
        ending: the exit handler, active while a window would have to be closed at exit.
        pace: step time estimate, over steps that are not recorded.
        no_more: called when nothing may be recorded in this process any more.
    """

    def __init__(
        self,
        spec: AgentSpec,
        spool: Spool,
        counter: StepCounter,
        thread: TrainingThread,
        ending: ExitHandler,
        step_time: StepTimeEstimate,
        no_more: Callable[[], None],
    ) -> None:
        self.current: Recording | None = None
        """The open window, from its warm-up on."""
        self._spec, self._spool, self._counter = spec, spool, counter
        self._thread, self._ending, self._step_time, self._no_more = thread, ending, step_time, no_more
        self._teardown = CuptiTeardown()
        self._theirs = UserProfilerWatch(self._is_ours, self._yield_to_users_profiler)
        self._history = MemoryHistory()
        self._yield_request = YieldRequest()
        self._compiled = CompiledFrames()
        self._recounted: str | None = None

    def install(self) -> None:
        """Watch the script's own profilers and its allocations, and import the backend."""
        self._theirs.install()
        self._history.install()
        with contextlib.suppress(Exception):  # the window that needs it reports the error
            load_capture(resolve(self._spec.capture.backend)[0])  # imported now, so that no step has to wait for it

    def begin(self, process: RankRecord, agreement: Agreement, *, records: bool, opened: Callable[[], None]) -> None:
        """Begin with the windows, now that this process is known to be a rank.

        Args:
            process: record of the rank's process.
            agreement: agreement on the windows to come.
            records: whether this rank is among those that record.
            opened: called when a window has been opened.
        """
        self._process, self._agreement, self._records, self._opened = process, agreement, records, opened

    # ------------------------------------------------------------ at every step

    @property
    def presses(self) -> bool:
        """Whether the open window has to be closed even if no step has ended."""
        window = self.current
        return window is not None and window.started and (self._yield_request.is_asked or window.overdue() is not None)

    def advance(self, completed: int, *, stepped: bool) -> None:
        """Open, continue or close a window.

        Args:
            completed: number of completed steps.
            stepped: whether a step has just ended.
        """
        window = self.current
        if self._recounted is not None:
            reason, self._recounted = self._recounted, None
            if window is not None and window.started:
                self._close(reason, completed)
            elif window is not None:
                self.cancel(reason)
        elif window is None:
            self._ending.release()
            if self._agreement.due(completed) and self._compiled.ended():
                self._open(completed)
        elif self._yield_request.is_asked:
            self._close_for_another()
        elif not window.started:
            if completed >= window.window.first:
                self._start(window, completed)
        elif window.has_ended(completed):
            if stepped and window.drained(at_once=self._agreement.plan_comes(completed)):
                self._close(None, completed)
        elif (overdue := window.overdue()) is not None:
            self._close(overdue, completed)
        elif window.capture is not None and stepped:
            window.capture.mark(completed)

    def recounted(self) -> None:
        """Note that a more trusted signal counts from 1 again: an open window ends, scheduled ones are repeated."""
        self._recounted = f"from here on steps are counted by {self._counter.source}, which is trusted more"
        self._agreement.recount(self._counter.source or "")
        self._step_time.forget()

    def cancel(self, reason: str) -> None:
        """Give up the open window, if there is one."""
        window, self.current = self.current, None
        if window is not None:
            window.cancel(reason)

    # ------------------------------------------------------------ from its warm-up to its end

    def _open(self, completed: int) -> None:
        planned, plan = self._agreement.take()
        spec = detailed(self._spec.capture, planned.detail)
        history = self._history if spec.memory_snapshot else None
        record = new_record(self._process, planned, plan)
        window = Recording(planned, record, self._spool, self._spec, history)
        record.step_source, record.steps_counted = self._counter.source, completed
        record.step_trust = self._counter.trust
        if not self._records:
            chosen = f"not among the ranks that record (capture.ranks={self._spec.capture.ranks})"
            window.give_up(chosen, status="skipped")
        elif completed > planned.first:
            window.give_up(f"this window was announced at step {completed}, after its first step {planned.first}")
        elif self._theirs.active:
            window.give_up("the script's own torch.profiler was active; two at once would crash the job")
        else:
            self._warm_up(window, completed, spec)

    def _warm_up(self, window: Recording, completed: int, spec: CaptureSpec) -> None:
        self._ending.guard()
        self.current = window  # from here on it will be ended, whatever happens
        if not window.open(self._maker(window.window, spec), self._step_time.recent_ms):
            self.current = None
            return
        if completed >= window.window.first:
            self._start(window, completed)
        self._opened()

    def _maker(self, window: Window, spec: CaptureSpec) -> Callable[[], Capture]:
        """Return a function that makes the capture of this window."""

        def make() -> Capture:
            self._teardown.finish()  # of the previous window
            capture: Capture = load_capture(window.backend)(spec, self._teardown)
            return capture

        return make

    def _start(self, window: Recording, completed: int) -> None:
        window.start(completed, self._agreement.confirmed)
        if window.capture is None:
            self.current = None

    def _close(self, reason: str | None, completed: int, *, leaving: bool = False) -> None:
        window, self.current = self.current, None
        if window is not None:
            self._agreement.closed(completed)
            reason = None if window.has_ended(completed) else reason
            window.close(reason, completed, self._counter.source, leaving=leaving)
            self._compiled.note()
            self._step_time.forget()

    # ------------------------------------------------------------ other profilers, CUDA graphs, forks, the end

    def _is_ours(self, profile: object) -> bool:
        window = self.current
        return window is not None and window.capture is not None and window.capture.owns(profile)

    def _yield_to_users_profiler(self) -> None:
        """End our profiler, because the user's profiler is about to be prepared."""
        self._teardown.stay_attached()
        if self.current is not None and self._thread.is_this():
            self._close_for_another()
        elif self.current is not None:
            self._yield_request.ask()
        self._teardown.finish()

    def _close_for_another(self) -> None:
        reason = "the script's own torch.profiler started inside this window, which ended for it"
        window = self.current
        if window is not None and window.capture is not None and self._yield_request.too_late:
            # libkineto belongs to the script's profiler now: ending ours would end that profile, or the process
            self.current = None
            window.capture.leave()
            window.give_up("the script's own torch.profiler began in another thread and did not wait any longer")
            self._no_more()  # our profiler's state in this thread cannot be removed
        elif window is not None and window.started:
            self._close(reason, self._counter.completed)
        else:
            self.cancel(reason)
        self._yield_request.answer()

    def graph_begins(self) -> None:
        """Prepare for the capture of a CUDA graph; before the first one, wait until CUPTI teardown has finished."""
        first = self._teardown.graph()
        if first and self.current is None and self._thread.is_this():
            self._teardown.finish()

    def left_in_child(self) -> None:
        """Leave the open window, because this is a forked child."""
        if self.current is not None and self.current.capture is not None:
            self.current.capture.leave()

    def end(self, reason: str | None, completed: int) -> bool:
        """End with the process; ``reason`` is given if it is a special one.

        Returns:
            Whether the libraries of this process may be unloaded.
        """
        window = self.current
        if window is not None and window.started:
            unfinished = f"the job ended in step {completed}; the window was to end with step {window.window.last}"
            self._close(reason or unfinished, completed, leaving=True)
        else:
            self.cancel(reason or "the job ended during the warm-up of this window")
        return self._teardown.close()
