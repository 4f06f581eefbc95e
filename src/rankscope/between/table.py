"""The step logs of all ranks side by side, as far as steps of several ranks can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankscope.between.step_logs import StepTimes
from rankscope.records.running.step_log import CHECKPOINT, DEVICE, EVALUATION, FORWARD_CALLS, RECORDED, WRAPPED

__all__ = ["FIRST_STEPS", "StepTable", "side_by_side"]

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FIRST_STEPS = 10
"""Left out at the beginning: compilation, allocator growth and cold caches are not the job. The first window begins
after as many (``schedule.skip_first``)."""
MOST_CELLS = 1 << 23
"""Steps times ranks that are compared: half a gigabyte. Of longer runs the last steps are."""
USUAL = 0.5
"""A flag that more of the steps have is how this job trains, and marks nothing."""


@dataclass(kw_only=True)
class StepTable:
    """Arrays are rank x step; times are ms.

    ``own`` is time that a rank spends by itself: no peer is waited for in it. It begins where the backward of the step
    before has ended, for there the ranks were together, and ends where the next part begins in which they meet; what a
    rank computes in that part is its own, too. ``met`` is the rest of it: what a rank waits for its peers is in it.
    """

    ranks: list[int]
    first: int
    """Number of the first step of the table."""
    step: F64
    own: F64
    met: F64
    held: F64
    """What of ``own`` the training thread could run and was not let."""
    places: dict[str, F64]
    """Parts of ``own`` by name; ``input`` and ``gc`` are taken out of the part that they lie in."""
    cpu: F64
    """CPU time of the training thread."""
    compared: Mask
    """Steps (one dimension) that all ranks have, none recorded, and that are neither occasion nor just after one."""
    checkpoint: Mask
    """rank x step"""
    evaluation: Mask
    wrapped: bool
    """Whether the parts of a step are known for what they are."""
    notes: list[str] = field(default_factory=list)


def side_by_side(logs: Mapping[int, StepTimes], first: int = FIRST_STEPS, since: int = 0) -> StepTable | None:
    """Put the logs of the ranks side by side; None where fewer than two have their parts timed.

    Args:
        logs: by rank.
        first: steps to leave out at the beginning.
        since: number of the first step of these logs.
    """
    known = {rank: log for rank, log in sorted(logs.items()) if log.has_parts}
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
    plain = wrapped and not _usual(flags, FORWARD_CALLS).any()
    on_device = bool(_usual(flags, DEVICE).all())
    parts = {
        name: column(f"device_{name}" if on_device else name) for name in ("before", "forward", "backward", "after")
    }
    inputs, gc = column("input"), column("gc")
    if on_device:  # what the host does while its device works costs nothing
        inputs = np.minimum(inputs, parts["before"])
        gc = np.minimum(gc, parts["before"] - inputs)
    places = {"input": inputs, "gc": gc}
    if wrapped:
        places["before"] = np.maximum(parts["before"] - inputs - gc, 0.0)
    if plain:
        places["forward"] = parts["forward"]
        # What follows a backward is done before the ranks meet again, which is in the backward of the next step.
        places["after"] = _shifted(parts["after"])
    if plain and not on_device:
        # Who waits uses no CPU: what a rank computes in its backward is its own, and the rest may be waiting.
        places["backward"] = np.minimum(column("cpu_backward"), parts["backward"])
    own = np.sum([*places.values()], axis=0) if wrapped else inputs + gc
    met = step - own
    if plain:
        met = parts["backward"]
    if "backward" in places:
        met = np.maximum(met - places["backward"] - column("held_backward"), 0.0)
    held = column("held") - column("held_backward")
    checkpoint, evaluation = _occasion(flags, CHECKPOINT), _occasion(flags, EVALUATION)
    known_steps = np.asarray(step > 0).all(axis=0)
    occasions = checkpoint.any(axis=0) | evaluation.any(axis=0)
    apart = np.array((flags & RECORDED).any(axis=0) | occasions | ~known_steps, bool)
    apart[1:] |= apart[:-1].copy()  # what follows a window or an occasion still feels it
    notes = []
    if begin > first:
        notes.append(f"the last {whole - begin:,} of {whole:,} steps were compared")
    if len(known) < len(logs):
        notes.append(f"{len(logs) - len(known)} step logs of an earlier version say nothing of the parts of a step")
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
        notes=notes,
    )


def _shifted(values: F64) -> F64:
    """Each step's value given to the next; that of the step before the first is taken to be like its own."""
    return np.concatenate([values[:, :1], values[:, :-1]], axis=1)


def _usual(flags: npt.NDArray[np.uint16], flag: int) -> Mask:
    """By rank, whether most of its steps have a flag."""
    return np.asarray(((flags & flag) > 0).mean(axis=1) > USUAL)


def _occasion(flags: npt.NDArray[np.uint16], flag: int) -> Mask:
    """Steps with a flag, on ranks where it is the exception."""
    found = (flags & flag) > 0
    return found & ~_usual(flags, flag)[:, None]
