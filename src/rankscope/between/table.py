"""Table of the step logs of all ranks, for the steps that can be compared between ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankscope.between.step_logs import StepTimes
from rankscope.listing import some_ranks
from rankscope.records.running.step_log import (
    ASKED,
    CHECKPOINT,
    DEVICE,
    EVALUATION,
    FORWARD_CALLS,
    RECORDED,
    WRAPPED,
)

__all__ = ["FIRST_STEPS", "StepTable", "side_by_side"]

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FIRST_STEPS = 10
"""Number of first steps left out: compilation, allocator growth and cold caches are not typical of the job. The first
window begins after as many (``schedule.skip_first``)."""
WHOLE = 0.5
"""Share of the steps of the longest log that others must have. All ranks of a job make the same steps, so that a
shorter log has lost its end; it would leave few steps of all ranks to compare."""
MOST_CELLS = 1 << 23
"""Largest number of ranks times steps to compare: half a gigabyte. Of longer runs, the last steps are compared."""
USUAL = 0.5
"""Share of the steps above which a flag is typical of the job and marks no occasion."""


@dataclass(kw_only=True)
class StepTable:
    """Arrays have shape (ranks, steps) unless stated otherwise; times are in ms.

    ``own`` is time that a rank spends by itself, without waiting for a peer. It begins at the end of the previous
    step's backward, where the ranks were together, and ends at the next part in which they meet. Computation of a rank
    in that part is its own, too. ``met`` is the rest of that part, and contains the time that a rank waits for its
    peers.
    """

    ranks: list[int]
    first: int
    """Number of the first step of the table."""
    step: F64
    own: F64
    met: F64
    held: F64
    """Time within ``own`` in which the training thread was runnable but did not run."""
    places: dict[str, F64]
    """Parts of ``own`` by name; ``input`` and ``gc`` are taken out of the part that contains them."""
    cpu: F64
    """CPU time of the training thread."""
    compared: Mask
    """Shape (steps,): steps that all ranks have, that no rank recorded, and that neither are an occasion nor follow
    one."""
    checkpoint: Mask
    """Steps marked as a checkpoint; ``evaluation`` likewise."""
    evaluation: Mask
    wrapped: bool
    """Whether the boundaries of the parts of a step are known."""
    launches: bool
    """Whether ``own`` is the time that hosts take to launch the work of their devices, which costs something only if it
    makes steps longer."""
    notes: list[str] = field(default_factory=list)


def side_by_side(
    logs: Mapping[int, StepTimes],
    first: int = FIRST_STEPS,
    since: int = 0,
    *,
    calls: bool = False,
    launches: bool = False,
) -> StepTable | None:
    """Align the logs of the ranks by step; None where fewer than two ranks timed the parts of a step.

    Args:
        logs: logs by rank.
        first: number of steps to leave out at the beginning.
        since: number of the first step of these logs.
        calls: compare only steps of which it is known when their collectives were issued. Until then the time of the
            backward is the rank's own, even if the rank sleeps.
        launches: compare the hosts of jobs on devices. They do not wait for peers, but for their own device, as far as
            they do in each step: after a backward and before the input of the next step, whichever it is counted to.
    """
    timed = {rank: log for rank, log in sorted(logs.items()) if log.has_parts}
    longest = max((log.steps for log in timed.values()), default=0)
    known = {rank: log for rank, log in timed.items() if log.steps >= WHOLE * longest}
    if len(known) < 2:
        return None
    whole = min(log.steps for log in known.values())
    begin = max(first, whole - MOST_CELLS // len(known))
    if whole - begin < 1:
        return None

    def column(name: str) -> F64:
        return np.array([log.column(name)[begin:whole] for log in known.values()])

    flags = np.array([log.flags()[begin:whole] for log in known.values()])
    step = column("step")
    wrapped = bool(_usual(flags, WRAPPED).all())
    plain = wrapped and not _usual(flags, FORWARD_CALLS).any() and not launches
    on_device = bool(_usual(flags, DEVICE).all()) and not launches
    parts = {
        name: column(f"device_{name}" if on_device else name) for name in ("before", "forward", "backward", "after")
    }
    inputs, gc = column("input"), column("gc")
    if on_device:  # work of the host while its device is busy costs nothing
        inputs = np.minimum(inputs, parts["before"])
        gc = np.minimum(gc, parts["before"] - inputs)
    places = {"input": inputs, "gc": gc}
    if wrapped:
        places["before"] = np.maximum(parts["before"] - inputs - gc, 0.0)
    if plain:
        places["forward"] = parts["forward"]
        # The time after a backward is spent before the ranks meet again, which is in the backward of the next step.
        places["after"] = _shifted(parts["after"])
    if plain and not on_device:
        # A waiting thread uses no CPU: CPU time in the backward is the rank's own, and the rest may be waiting.
        own_backward = column("cpu_backward")
        if calls:
            own_backward = np.maximum(own_backward, column("issued") - column("held_backward"))
        places["backward"] = np.minimum(own_backward, parts["backward"])
    if launches and wrapped:
        places = {"input": inputs, "gc": gc, "forward": parts["forward"], "backward": parts["backward"]}
    own = np.sum([*places.values()], axis=0) if wrapped else inputs + gc
    met = step - own
    if plain:
        met = parts["backward"]
    if launches:
        met = parts["after"] + np.concatenate([(parts["before"] - inputs - gc)[:, 1:], met[:, -1:]], axis=1)
        met = np.maximum(met, 0.0)
    if "backward" in places and plain:
        met = np.maximum(met - places["backward"] - column("held_backward"), 0.0)
    held = np.minimum(column("held"), own) if launches else column("held") - column("held_backward")
    checkpoint, evaluation = _occasion(flags, CHECKPOINT), _occasion(flags, EVALUATION)
    known_steps = np.asarray(step > 0).all(axis=0)
    occasions = checkpoint.any(axis=0) | evaluation.any(axis=0)
    apart = np.array((flags & (RECORDED | ASKED)).any(axis=0) | occasions | ~known_steps, bool)
    apart[1:] |= apart[:-1].copy()  # the step after a window or an occasion is still affected
    if launches:
        apart[:-1] |= apart[1:].copy()
        apart[-1] = True  # peers may wait for it in the next step only, which is not there yet
    if calls:
        apart |= ~np.asarray(column("issued") > 0).all(axis=0) if "backward" in places else True
    notes = []
    if begin > first:
        notes.append(f"the last {whole - begin:,} of {whole:,} steps were compared")
    if len(timed) < len(logs):
        notes.append(f"{len(logs) - len(timed)} step logs of an earlier version say nothing of the parts of a step")
    if short := [rank for rank in timed if rank not in known]:
        one = len(short) == 1
        notes.append(
            f"the step log{'' if one else 's'} of rank{'' if one else 's'} {some_ranks(short)} "
            f"{'ends early and was' if one else 'end early and were'} left out"
        )
    return StepTable(
        ranks=list(known),
        first=since + begin,
        step=step,
        own=own,
        met=met,
        held=np.maximum(held, 0.0),
        places=places,
        cpu=column("cpu"),
        compared=~apart,
        checkpoint=checkpoint,
        evaluation=evaluation,
        wrapped=wrapped,
        launches=launches,
        notes=notes,
    )


def _shifted(values: F64) -> F64:
    """Move each step's value to the next step; the first step keeps its own."""
    return np.concatenate([values[:, :1], values[:, :-1]], axis=1)


def _usual(flags: npt.NDArray[np.uint16], flag: int) -> Mask:
    """Whether most steps of a rank have a flag, shape (ranks,)."""
    return np.asarray(((flags & flag) > 0).mean(axis=1) > USUAL)


def _occasion(flags: npt.NDArray[np.uint16], flag: int) -> Mask:
    """Steps with a flag, on ranks where it is the exception."""
    found = (flags & flag) > 0
    return found & ~_usual(flags, flag)[:, None]
