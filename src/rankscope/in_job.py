"""What a training script may tell rankscope: regions, marks, what a step does, and that steps are worth a recording.

Every process of a job imports this module, so it needs next to nothing. Without an agent in the process
(``rankscope run``, ``exec`` or ``attach``), everything here returns at once. Nothing here raises an error into the job,
except for a decorator on what cannot be decorated.

Code that torch.compile traces skips all of it: :data:`compiling` is true there, so that neither graph breaks nor guards
on the state below come about, and a window that opens recompiles nothing.
"""

from __future__ import annotations

from _thread import get_ident

TYPE_CHECKING = False  # typing takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

    class Block(Protocol):
        """A range that was begun."""

        def close(self) -> None:
            """End it."""

    class Recorder(Protocol):
        """What records ranges while a window is open."""

        def begin(self, name: str) -> Block:
            """Begin a range in the calling thread."""

    class Agent(Protocol):
        """What the agent does with the script's words. Raises nothing."""

        def mark(self, name: str, values: dict[str, Any]) -> None:
            """See :func:`mark`."""

        def describe(self, numbers: dict[str, Any]) -> None:
            """See :func:`describe`."""

        def capture(self, steps: int, detail: str, reason: str) -> bool:
            """See :func:`capture`."""

        def failed(self, what: str, error: Exception) -> None:
            """Keep an error for the report."""


__all__ = ["active", "capture", "describe", "mark", "region"]

_SUSPENDS = 0x20 | 0x80 | 0x100 | 0x200
"""Flags of code that suspends itself (``inspect.CO_GENERATOR``, ``CO_COROUTINE``, ...); ``inspect`` takes long to
import."""


def _never() -> bool:
    return False


recorder: Recorder | None = None
"""Records regions while a window is open; set by a backend."""
agent: Agent | None = None
"""The agent of this process, from its begin to its end."""
compiling: Callable[[], bool] = _never
"""``torch.compiler.is_compiling``, once there is an agent. It is asked before the others are read, because code that is
compiled would be guarded on what it reads."""


class region:  # noqa: N801 - used like a function, as torch's record_function
    """Name a part of the step: ``with rankscope.region("attention"):``, or ``@rankscope.region("loss")``.

    In a recorded window the part is a range of that name in the trace and the timeline, and the report's table of
    regions has its time on the host and the work that it launched, per step and rank. Between windows it costs less
    than a microsecond, without rankscope less, and nothing is recorded. Regions may be nested, also within themselves,
    and used in any thread; only the training thread and those that work for it are recorded. In code under
    torch.compile it does nothing, and breaks no graph.

    Blocks of ``torch.profiler.record_function`` are regions of the report too.

    Args:
        name: the name of the row; not the number of a step or layer, unless each shall have a row of its own.

    Raises:
        TypeError: as a decorator of a generator or coroutine, which would still be running when the region ends.
            Nothing else is raised.
    """

    __slots__ = ("_open", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._open: dict[int, list[Block]] | None = None

    def __enter__(self) -> region:  # noqa: PYI034 - Self came with Python 3.11
        if not compiling() and recorder is not None:
            self._begin(recorder)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._open:
            self._end()

    def __call__(self, function: F) -> F:
        """Return the function as a region."""
        import functools

        if getattr(getattr(function, "__code__", None), "co_flags", 0) & _SUSPENDS:
            raise TypeError(
                f"a region cannot decorate {function!r}: a generator or coroutine runs after its call has returned; "
                "use `with rankscope.region(...)` inside of it"
            )
        name = self.name

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with region(name):
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"rankscope.region({self.name!r})"

    def _begin(self, recorder: Recorder) -> None:
        try:
            block = recorder.begin(self.name)
        except Exception as error:  # no error of rankscope may reach the job
            _failed(f"region {self.name!r}", error)
            return
        blocks = self._open
        if blocks is None:
            blocks = self._open = {}
        blocks.setdefault(get_ident(), []).append(block)

    def _end(self) -> None:
        blocks = self._open or {}
        own = blocks.get(get_ident())
        if not own:
            return
        block = own.pop()
        if not own:
            blocks.pop(get_ident(), None)
        try:
            block.close()
        except Exception as error:  # as above
            _failed(f"region {self.name!r}", error)


def mark(name: str, **values: float) -> None:
    """Mark that something happened in this step: ``rankscope.mark("checkpoint", gib=12)``.

    The report draws marks over the step times of the whole run, recorded or not, and lists them; in a recorded window
    they are in the trace and the timeline, too. The first 100 marks of a rank are kept. Raises nothing, and does
    nothing without rankscope and in code under torch.compile.

    Args:
        name: what happened, up to 80 characters. Ranks that mark the same in the same step are one line of the report.
        **values: numbers. A tensor is left out, because reading it would wait for its device: pass ``x.item()``.
    """
    if compiling() or agent is None:
        return
    agent.mark(name, values)


def describe(*, tokens: float | None = None, samples: float | None = None, model_flop: float | None = None) -> None:
    """State what one step of the whole job processes, so that the report can state rates.

    Each is for all ranks together, whatever the parallelism, so that no rank needs to know which ranks share its batch.
    All ranks may say it; the lowest rank counts. May be called at any time, and again when it changes: the last word
    counts. The layout (data, tensor, pipeline parallelism) need not be stated, because the process groups show it.
    Raises nothing, and does nothing without rankscope.

    Args:
        tokens: number of tokens of a step, of the global batch: the report and :func:`rankscope.latest` state tokens/s.
        samples: number of samples of a step; likewise samples/s.
        model_flop: floating-point operations that the model needs for a step, without recomputation:
            ``6 * parameters * tokens`` for a dense transformer. The report states the share of the devices' peak (MFU).
    """
    if compiling() or agent is None:
        return
    agent.describe({"tokens": tokens, "samples": samples, "model_flop": model_flop})


def capture(steps: int = 5, *, detail: str = "", reason: str = "") -> bool:
    """Ask for a recording of the next steps, on all ranks: ``rankscope.capture(reason="loss spike")``.

    One rank is enough; calls of several ranks in the same step, or before the recorded steps are over, are one
    recording. It begins some steps later, because all ranks agree on it first. The limits ``budget.windows`` and
    ``budget.megabytes`` apply, and the report says what was refused. Without a store that ranks share
    (docs/capture.md), only ranks on the node of rank 0 can ask. Raises nothing.

    Args:
        steps: number of steps to record, 1 to 1,000.
        detail: what else to record: ``shapes``, ``stacks`` or ``memory``.
        reason: for the report.

    Returns:
        Whether the request was passed on: False in a process that is not recorded, in code under torch.compile, and for
        arguments that are out of their limits, which the report mentions.
    """
    if compiling() or agent is None:
        return False
    return agent.capture(steps, detail, reason)


def active() -> bool:
    """Return whether the agent of rankscope runs in this process, under ``rankscope run``, ``exec`` or ``attach``."""
    return agent is not None


def _failed(what: str, error: Exception) -> None:
    if agent is not None:
        agent.failed(what, error)
