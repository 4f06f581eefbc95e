"""How long the parts of a step take on the device: events recorded where the host passes, read when the device has.

The host of a job on an accelerator runs ahead, so that its own times of the parts of a step tell how long launching
takes. An event (``torch.cuda.Event``) lies in the stream behind the work launched so far, and the device notes the time
at which it comes there. Nothing here ever waits for the device: an event is only asked whether it was reached, and not
at all while a CUDA graph is captured, where even that question ends the capture (CUDA Programming Guide, prohibited
and unhandled operations). CUDA is not initialised by it. Whatever goes wrong switches it off for the rest of the run.
"""

from __future__ import annotations

from typing import Any

from rankscope.agent.process.guard import tell

__all__ = ["MOST_EVENTS", "MOST_MARKS", "DeviceTimes", "Marks"]

MOST_EVENTS = 256
"""Some fifty steps. A host that is farther ahead than that has steps without device times."""
MOST_MARKS = 64
"""Of a step: sixteen micro-batches. A step with more has no device times."""


class _Event:
    """An event of torch, and in how many steps it is used: the end of one is the beginning of the next."""

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


class DeviceTimes:
    """Of the stream that is current in the training thread.

    Args:
        cuda: ``torch.cuda``, or what has as much of it as is used here.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._free: list[_Event] = []
        self._made = 0
        self._captures = 0
        self._step: Marks | None = None
        self.off = False
        """Something has gone wrong."""

    def capture_begins(self) -> None:
        """A graph is about to be captured, in whatever thread: until it ends the device is not asked anything."""
        self._captures += 1

    def capture_ends(self) -> None:
        """The capture is over, however it ended."""
        self._captures = max(self._captures - 1, 0)

    def ended(self, part: int) -> None:
        """A part of the step ends here: its number. In the training thread."""
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
        """The step ends with this part, and the next begins.

        Args:
            part: its number.
            recorded: a window is open. Its steps are left alone: they are in the trace.

        Returns:
            What the step's times can be read from once the device has come so far, to be given back by
            :meth:`release`; None where the step has none.
        """
        self.ended(part)
        done, self._step = self._step, None
        first = None if recorded else done.events[-1] if done is not None else self._record()
        if first is not None:
            first.uses += 1
            self._step = Marks(first)
        return done

    def read(self, marks: Marks) -> list[int] | None:
        """Nanoseconds of the four parts of a step; None while the device has not done it, or may not be asked."""
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
        """Nobody reads these any more. An event that the device has not reached yet may be recorded again."""
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
                self._free.append(_Event(self._cuda.Event(enable_timing=True)))
            self._free[-1].event.record()
        except Exception as error:
            self._switch_off(error)
            return None
        return self._free.pop()

    def _may_not_be_asked(self) -> bool:
        if self.off or self._captures:
            return True
        try:
            return not self._cuda.is_initialized() or bool(self._cuda.is_current_stream_capturing())
        except Exception as error:
            self._switch_off(error)
            return True

    def _switch_off(self, error: Exception) -> None:
        if not self.off:
            self.off = True
            tell(f"from here on the step log has no times of the device: {error!r}")
