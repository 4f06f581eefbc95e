"""One rank's profiling life: which step it is, what is due at its end, what has been left behind.

Everything happens at step boundaries in the training thread. Between windows a boundary costs a comparison.
"""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from collections import deque
from pathlib import Path

import torch
import torch.distributed as dist

from rankscope.agent.agreement import Agreement
from rankscope.agent.capture import InlineCapture, device_in_use
from rankscope.agent.ending import Ending, Settler
from rankscope.agent.foreign import ForeignProfilers
from rankscope.agent.guard import guarded
from rankscope.agent.steps import StepCounter, install_detectors
from rankscope.model import AgentSpec, ClockSample, RankRecord, RankStatus, StepTimes, Window, to_json
from rankscope.rundir import Spool

__all__ = ["Session", "user_step"]

_session: Session | None = None

_REMEMBERED_STEPS = 32
"""Host times of this many unprofiled steps are kept on each side of a window."""


def user_step() -> None:
    """What ``rankscope.step()`` does in a profiled rank."""
    if _session is not None:
        _session.counter.signal("user")


class Session:
    """The state of the agent. One per process, made by :meth:`begin`."""

    def __init__(self, spec: AgentSpec, environ: dict[str, str]) -> None:
        self.spec = spec
        self.spool = Spool(Path(spec.spool))
        self.life = RankRecord(
            rank=int(environ["RANK"]),
            local_rank=int(environ.get("LOCAL_RANK", "-1")),
            world_size=int(environ.get("WORLD_SIZE", "-1")),
            host=socket.gethostname(),
            pid=os.getpid(),
            attempt=int(environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            torch_version=str(torch.__version__),
            status="partial",
            reason="no word of its end: killed, os._exit, or still running",
        )
        self.counter = StepCounter(self.step_completed, spec.step_source)
        self._thread: int | None = None
        self._window = spec.schedule.window(0)
        self._capture: InlineCapture | None = None
        self._record: RankRecord | None = None
        self._settler: Settler | None = None
        self._agreement = Agreement(spec.run_id, self.life.attempt, self.life.rank == 0, environ)
        self._foreign = ForeignProfilers(self._is_ours, self._stand_aside)
        self._ending = Ending(guarded(self._end), spec.exit_grace_s)
        self._last_tick: int | None = None
        self._unprofiled: deque[float] = deque(maxlen=_REMEMBERED_STEPS)

    @classmethod
    def begin(cls, spec: AgentSpec) -> None:
        """Arm this process: detectors, the watch over other profilers, the end of the process."""
        global _session  # noqa: PLW0603 - the process has one training loop and one profiler
        _session = session = cls(spec, dict(os.environ))
        session._write_life()
        install_detectors(session.counter)
        session._foreign.install()
        os.register_at_fork(after_in_child=_disarm)

    # ------------------------------------------------------------ at every step

    def step_completed(self, completed: int) -> None:
        """Step ``completed - 1`` has ended and step ``completed`` begins."""
        if _session is not self:
            return
        if self._thread is None:
            self._first_step()
        if threading.get_ident() != self._thread:
            return
        self._time_step()
        window = self._window
        if window is None:
            return
        if self._capture is None:
            self._before_window(window, completed)
        elif not self._capture.recording:
            if completed >= window.first:
                self._start(self._capture, window, completed)
        elif completed > window.last:
            self._close("ok", None, completed)
            self._next_window(window)
        else:
            self._capture.mark(completed)

    def _first_step(self) -> None:
        """Of several processes of one rank (a shell wrapper that starts more than one), the first to step is it."""
        try:
            os.close(os.open(self.spool.owner(self.life.attempt, self.life.rank), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            _disarm()
            return
        self._thread = threading.get_ident()

    def _time_step(self) -> None:
        now = time.perf_counter_ns()
        if self._last_tick is not None:
            elapsed_ms = (now - self._last_tick) / 1e6
            if self._record is not None and self._capture is not None and self._capture.recording:
                self._record.steps.inside_ms.append(elapsed_ms)
            elif self._capture is None:
                self._unprofiled.append(elapsed_ms)
        self._last_tick = now

    def _before_window(self, window: Window, completed: int) -> None:
        if completed == max(1, window.warm - self.spec.agreement_lead):
            self._agreement.ask(window.number, window.first)
        agreed = self._agreement.answer(window.number)
        if agreed is not None and agreed != window.first and agreed > completed:
            self._window = window = window.moved(agreed)
        if completed >= window.warm:
            self._open(window, completed)

    # ------------------------------------------------------------ a window

    def _open(self, window: Window, completed: int) -> None:
        begun = time.perf_counter_ns()
        plan = self.spec.schedule.window(window.number)
        self._record = RankRecord(**{**vars(self.life), "status": "ok", "reason": None, "notes": []})
        self._record.window = window.number
        self._record.steps = StepTimes(before_ms=list(self._unprofiled))
        if plan is not None:
            self._record.planned_first_step, self._record.planned_last_step = plan.first, plan.last
        self._record.clock = [_clock_sample()]
        if self._foreign.active:
            self._leave_empty("the script's own torch.profiler was active; two at once would crash the job")
            return
        try:
            self._capture = InlineCapture(self.spec.capture)
            self._settler = Settler(self._capture.device)
            self._ending.guard()
            self._capture.prepare()
        except Exception as error:  # a profiler that cannot start must not end the job
            self._leave_empty(f"torch.profiler did not start: {error!r}")
            return
        self._record.steps.open_ms = (time.perf_counter_ns() - begun) / 1e6
        if completed >= window.first:
            self._start(self._capture, window, completed)
        self._write_life()
        self._last_tick = time.perf_counter_ns()

    def _start(self, capture: InlineCapture, window: Window, completed: int) -> None:
        record = self._known_record()
        record.first_step = completed
        record.agreed = None if (agreed := self._agreement.answer(window.number)) is None else agreed == completed
        record.device = _device_name(capture.device)
        record.backend = str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else None
        record.cuda_used = capture.device is not None
        try:
            capture.start(
                completed,
                {
                    "run_id": self.spec.run_id,
                    "rank": record.rank,
                    "world_size": record.world_size,
                    "attempt": record.attempt,
                    "window": record.window,
                    "host": record.host,
                    "device": record.device,
                    "torch": record.torch_version,
                },
            )
        except Exception as error:  # as in _open
            self._leave_empty(f"torch.profiler did not record: {error!r}")

    def _close(self, status: RankStatus, reason: str | None, completed: int) -> None:
        """Stop, export to this node's own disk, and announce the result by its record."""
        capture, record = self._capture, self._known_record()
        self._capture = None
        if capture is None:
            return
        begun = time.perf_counter_ns()
        record.status, record.reason = status, reason
        record.last_step = completed - 1
        record.steps_counted, record.step_source = completed, self.counter.source
        record.clock.append(_clock_sample())
        target = self.spool.trace(record.attempt, self._number(record), record.rank)
        try:
            if reason is not None and self._settler is not None and not self._settler.settles(self.spec.exit_grace_s):
                raise TimeoutError("the device did not finish its work; a peer it waits for is gone")
            capture.stop()
            capture.export(target)
            record.trace = target.name
        except Exception as error:  # the record tells it
            record.status = "missing"
            record.reason = f"{reason + '; ' if reason else ''}no trace: {error}"
        record.steps.close_ms = (time.perf_counter_ns() - begun) / 1e6
        self._finish_window()
        self._last_tick = None
        self._unprofiled.clear()

    def _leave_empty(self, reason: str) -> None:
        """Give this window up before it has recorded anything; the record says why."""
        record = self._known_record()
        record.status, record.reason = "missing", reason
        record.step_source, record.steps_counted = self.counter.source, self.counter.completed
        self._capture = None
        self._finish_window()
        if self._window is not None:
            self._next_window(self._window)

    def _finish_window(self) -> None:
        record, self._record = self._known_record(), None
        self._ending.release()
        if self._settler is not None:
            self._settler.dismiss()
            self._settler = None
        self._write(self.spool.record(record.attempt, self._number(record), record.rank), record)

    def _next_window(self, window: Window) -> None:
        self._window = self.spec.schedule.window(window.number + 1)

    def _known_record(self) -> RankRecord:
        if self._record is None:
            raise RuntimeError("no window is open")
        return self._record

    @staticmethod
    def _number(record: RankRecord) -> int:
        return record.window if record.window is not None else -1

    # ------------------------------------------------------------ other profilers, the end

    def _is_ours(self, profile: object) -> bool:
        return self._capture is not None and self._capture.owns(profile)

    def _stand_aside(self) -> None:
        """The user's profiler is about to be prepared: ours must be gone by then."""
        capture, window = self._capture, self._window
        if capture is None or window is None or threading.get_ident() != self._thread:
            return
        reason = "the script's own torch.profiler started inside this window, which made way for it"
        if capture.recording:
            self._close("partial", reason, self.counter.completed)
            self._next_window(window)
        else:
            capture.cancel()
            self._leave_empty(reason)

    def _end(self, reason: str | None) -> None:
        """The process ends. Called once, by :class:`Ending`."""
        if _session is not self:
            return
        completed = self.counter.completed
        capture, window = self._capture, self._window
        if capture is not None and window is not None:
            if capture.recording:
                unfinished = f"the job ended in step {completed}; the window was to end with step {window.last}"
                self._close("partial", reason or unfinished, completed)
            else:
                record = self._known_record()
                record.status, record.reason = "missing", reason or "the job ended during the warm-up of this window"
                self._capture = None
                self._finish_window()
        self.life.status, self.life.reason = ("ok", None) if reason is None else ("partial", reason)
        self.life.steps.after_ms = list(self._unprofiled)
        self._write_life()

    def _write_life(self) -> None:
        if self._thread is None and self.spool.owner(self.life.attempt, self.life.rank).exists():
            return  # another process of this rank trains
        self.life.steps_counted, self.life.step_source = self.counter.completed, self.counter.source
        self.life.device = _device_name(device_in_use())
        self.life.open_window = self._record.window if self._record is not None else None
        self._write(self.spool.life(self.life.attempt, self.life.rank), self.life)

    def _write(self, path: Path, record: RankRecord) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(to_json(record), encoding="utf-8")
        temporary.replace(path)  # the spool is ours alone, and a life is written twice


def _disarm() -> None:
    """This process is not the training process (any more): forked children, and second comers of a rank."""
    global _session  # noqa: PLW0603 - see Session.begin
    _session = None


def _device_name(device: str | None) -> str:
    if device is None:
        return f"cpu ({platform.machine()})"
    return str(getattr(torch, device).get_device_name())


def _clock_sample() -> ClockSample:
    return ClockSample(realtime_ns=time.time_ns(), monotonic_ns=time.monotonic_ns())
