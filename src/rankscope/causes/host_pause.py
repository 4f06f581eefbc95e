"""Cause: the training threads run neither an operator nor a call (garbage collection, locks, file I/O, sleeps)."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.causes.base import GARBAGE_COLLECTION, Cause, Facts, HostExample, HostTime, Spans

__all__ = ["CAUSE"]


def _host_time(host: HostTime) -> Spans:
    return host.silence()


_ADVICE = (
    (
        "Look for garbage collection (gc.freeze(), gc.disable() with a collect between steps), locks, files, "
        "writes and sleeps in the step."
    ),
    "Record again with stacks (-S capture=full, or with_stack=True of torch.profiler) to see the Python line.",
)


def _advise(facts: Facts) -> Sequence[str]:
    if facts.line:
        return [f"Look at {facts.line}: garbage collection (gc.freeze()), a lock, a file, a write or a sleep."]
    return _ADVICE[:1] if facts.stacks else _ADVICE


CAUSE = Cause(
    name="host_pause",
    phrase="its Python stands still, doing nothing the profiler sees",
    noun="Python standing still",
    advice=_ADVICE,
    advise=_advise,
    check="no gap above 1 ms in its host track",
    first_try="garbage collection, locks, files, sleeps",
    needs=("cpu_op",),
    planted_by="demo: host_pause",
    host_time=_host_time,
    behind=("cpu_throttled", GARBAGE_COLLECTION),
    examples=(
        HostExample((("cpu_op", "aten::mm", 0, 30), ("cpu_op", "aten::mm", 70, 30)), claims_ms=40),
        HostExample((("cpu_op", "aten::mm", 0, 50), ("cpu_op", "aten::mm", 50.5, 49.5)), claims_ms=0),
    ),
)
