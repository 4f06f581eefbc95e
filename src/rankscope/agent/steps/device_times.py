"""Duration of the parts of a step on the device, from events that the host records and reads after the device has.

The host of an accelerator job runs ahead of its device, so host times of the parts of a step show only how long
launching takes. An event (``torch.cuda.Event``) is enqueued in the stream behind the work launched so far, and the
device stores the time at which it reaches the event. No function here waits for the device: an event is only queried,
and not at all while a CUDA graph is captured, since even a query then ends the capture (CUDA Programming Guide,
prohibited and unhandled operations). CUDA is never initialised. Any error switches device times off for the rest of the
run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rankscope.agent.process.guard import keep_message

__all__ = ["MOST_EVENTS", "MOST_MARKS", "DeviceTimes", "Marks", "quick_event"]

MOST_EVENTS = 256
"""Enough for some fifty steps. If the host is farther ahead of its device, steps have no device times."""
MOST_MARKS = 64
"""Per step: sixteen micro-batches. A step with more marks has no device times."""


class _Event:
    """An event of torch, and the number of steps that use it: the end of one step is the begin of the next."""

    __slots__ = ("event", "uses")

    def __init__(self, event: Any) -> None:
        self.event = event
        self.uses = 0


class Marks:
    """The events of one step, in the order in which the device reaches them; each but the first ends a part."""

    __slots__ = ("events", "parts")

    def __init__(self, first: _Event) -> None:
        self.events = [first]
        self.parts: list[int] = []


def quick_event() -> Any:
    """Make an event that takes 1.5 us to record; one of ``torch.cuda`` takes 6.3, most of them to look up the current
    stream in Python (torch 2.11 on an H200)."""
    library: Any = torch
    if library.__version__ < (2, 11):
        return library.cuda.Event(enable_timing=True)
    return library.Event("cuda", enable_timing=True)


class DeviceTimes:
    """Device times of the stream that is current in the training thread.

    Args:
        cuda: ``torch.cuda``, or an object with the parts of its interface that are used here.
        make: makes an event; by default one of ``cuda``.
    """

    def __init__(self, cuda: Any, make: Callable[[], Any] | None = None) -> None:
        self._cuda = cuda
        self._make = make or (lambda: cuda.Event(enable_timing=True))
        self._free: list[_Event] = []
        self._made = 0
        self._captures = 0
        self._initialised = False
        self._step: Marks | None = None
        self.off = False
        """Whether an error has switched device times off."""

    def capture_begins(self) -> None:
        """Note that a graph is about to be captured, in any thread: events are not queried until it ends."""
        self._captures += 1

    def capture_ends(self) -> None:
        """Note that the capture is over, whether it succeeded or not."""
        self._captures = max(self._captures - 1, 0)

    def ended(self, part: int) -> None:
        """Record an event at the end of a part, given by its number. Called in the training thread."""
        step = self._step
        if step is None:
            return
        event = self._record() if len(step.parts) < MOST_MARKS else None
        if event is None:
            self._step = None
            self.release(step)
            return
        event.uses += 1
        step.events.append(event)
        step.parts.append(part)

    def step_ended(self, part: int, *, recorded: bool) -> Marks | None:
        """Record the end of the step, which is the begin of the next.

        Args:
            part: number of the part that ends with the step.
            recorded: a window is open. Its steps are not timed, because the trace contains them.

        Returns:
            The events from which :meth:`read` gets the step's times later, to be given back by :meth:`release`; None if
            the step has none.
        """
        self.ended(part)
        done, self._step = self._step, None
        first = None if recorded else done.events[-1] if done is not None else self._record()
        if first is not None:
            first.uses += 1
            self._step = Marks(first)
        return done

    def read(self, marks: Marks) -> list[int] | None:
        """Return the nanoseconds of the four parts of a step; None while the device has not finished it, or must not be
        queried."""
        if self._may_not_be_asked():
            return None
        try:
            if not all(event.event.query() for event in reversed(marks.events)):
                return None
            spent = [0, 0, 0, 0]
            for number, part in enumerate(marks.parts):
                begin, end = marks.events[number].event, marks.events[number + 1].event
                spent[part] += max(round(1e6 * begin.elapsed_time(end)), 0)
        except Exception as error:
            self._switch_off(error)
            return None
        return spent

    def release(self, marks: Marks) -> None:
        """Free the events of a step. An event that the device has not reached yet may be recorded again."""
        for event in marks.events:
            event.uses -= 1
            if not event.uses:
                self._free.append(event)

    def _record(self) -> _Event | None:
        if self._may_not_be_asked():
            return None
        try:
            if not self._free:
                if self._made >= MOST_EVENTS:
                    return None
                self._made += 1
                self._free.append(_Event(self._make()))
            self._free[-1].event.record()
        except Exception as error:
            self._switch_off(error)
            return None
        return self._free.pop()

    def _may_not_be_asked(self) -> bool:
        if self.off or self._captures:
            return True
        try:
            self._initialised = self._initialised or bool(self._cuda.is_initialized())
            return not self._initialised or bool(self._cuda.is_current_stream_capturing())
        except Exception as error:
            self._switch_off(error)
            return True

    def captures(self) -> bool:
        """Return whether a graph is captured, so that no event may be queried. Errors are CUDA's own."""
        if self._captures:
            return True
        return bool(self._cuda.is_initialized() and self._cuda.is_current_stream_capturing())

    def _switch_off(self, error: Exception) -> None:
        if not self.off:
            self.off = True
            keep_message(f"from here on the step log has no times of the device: {error!r}")
