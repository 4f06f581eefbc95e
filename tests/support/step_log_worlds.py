"""Simulated step logs of whole jobs: every rank works, then all synchronise; the late rank is known.

    world(ranks, steps, seed, late=...) -> logs by rank, as read from files

Own work has what real steps have: neighbours that resemble each other, a long tail, preemptions that the scheduler
counts, a steady difference between the ranks, a machine that is busy for a while.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankscope.between.step_logs import ENTRY, StepTimes
from rankscope.records.running.step_log import DEVICE, FORWARD_CALLS, STEP_LOG_COLUMNS, WRAPPED

__all__ = ["world"]

Late = Callable[[int, int], float]
"""Step, rank -> ms."""


def world(
    ranks: int = 2,
    steps: int = 700,
    seed: int = 0,
    *,
    late: Late | None = None,
    place: str = "input",
    step_ms: float = 40.0,
    noise: float = 0.03,
    tail: float = 0.02,
    busy: float = 0.0,
    offset: float = 0.01,
    flags: dict[int, dict[int, int]] | None = None,
    everyone: Callable[[int], float] | None = None,
    meets: str = "backward",
    device: bool = False,
    issued: bool = False,
    launches: float = 0.0,
    waits_first: bool = False,
) -> dict[int, StepTimes]:
    """Logs of a job.

    Args:
        late: what a rank is late by in a step, ms.
        place: column in which it is: input, before, forward, after, backward (computing), or ``hidden`` (sleeping in
            the backward, where nobody sees).
        step_ms: a usual step; half of it is own work before the ranks meet.
        noise: standard deviation of own work, share of it; resembles that of the step before.
        tail: share of steps that take longer by a Pareto number of half steps.
        busy: how long threads are held up per step on average, share of it, by a busy machine.
        offset: standard deviation of the steady difference between ranks, share of a step.
        flags: step -> rank -> flags.
        everyone: what all ranks take longer in a step, ms.
        meets: ``forward`` where the forward communicates as well.
        issued: it is known when the last collective of each backward was issued, which is when it ends but for 1 ms.
        launches: all of this happens on devices, for which hosts wait for so long a part of a step, at its end; in the
            rest of the time they launch it, and are late.
        waits_first: they wait at the begin of the next step.
        device: all of this happens on devices; the hosts launch it, wait once a step, and note the devices' times.
    """
    rng = np.random.default_rng(seed)
    shape = (ranks, steps)
    slow = rng.normal(0, noise, shape)
    for step in range(1, steps):
        slow[:, step] = 0.5 * slow[:, step - 1] + np.sqrt(0.75) * slow[:, step]
    work = step_ms / 2 * (1 + slow) + rng.normal(0, offset * step_ms, (ranks, 1))
    work += np.where(rng.random(shape) < tail, step_ms / 2 * rng.pareto(1.5, shape).clip(0, 20), 0.0)
    held = (
        np.where(rng.random(shape) < 0.5, rng.exponential(2 * busy * step_ms, shape), 0.0) if busy else np.zeros(shape)
    )
    extra = np.zeros(shape)
    if late is not None:
        extra = np.array([[late(step, rank) for step in range(steps)] for rank in range(ranks)])
    common = np.array([everyone(step) for step in range(steps)]) if everyone is not None else np.zeros(steps)
    inside = place in ("hidden", "backward")
    visible = np.zeros(shape) if inside else extra
    # what is done after a backward delays the meeting in the next one
    shifted = np.concatenate([visible[:, 1:], np.zeros((ranks, 1))], axis=1) if place == "after" else visible
    columns = {name: np.zeros(shape) for name in STEP_LOG_COLUMNS}
    columns["before"], columns["forward"] = 0.3 * work + held, 0.6 * work
    columns["after"] = 0.1 * work
    before_meeting = columns["before"] + columns["forward"] + columns["after"] + visible + common
    backward = step_ms / 2 * (1 + 0.1 * np.abs(rng.normal(0, noise, shape))) + (extra if inside else 0.0)
    together = (before_meeting + backward).max(axis=0)
    columns["backward"] = together - before_meeting
    if not inside:
        columns[place] = columns[place] + (shifted if place == "after" else visible)
    columns["before"] = columns["before"] + columns["input"] * (place == "input") + common
    if meets == "forward":  # who is early waits in the forward already
        waits = columns["backward"] - columns["backward"].min(axis=0)
        columns["forward"], columns["backward"] = columns["forward"] + waits, columns["backward"] - waits
    columns["step"] = columns["before"] + columns["forward"] + columns["backward"] + columns["after"]
    busy_inside = backward - (extra if place == "hidden" else 0.0)
    columns["cpu"], columns["cpu_backward"], columns["held"] = 0.9 * work + busy_inside, busy_inside, held
    if issued:
        columns["issued"] = backward - 1.0
    if launches:
        _launched(columns, step_ms * (1 - launches), extra, place, step_ms, waits_first=waits_first)
    if device:
        for name in ("before", "forward", "backward", "after"):
            columns[f"device_{name}"] = columns[name]
            columns[name] = np.ones(shape)
        columns["after"] = columns["step"] - 3.0
    usual = WRAPPED | (DEVICE if device else 0) | (FORWARD_CALLS if meets == "forward" else 0)
    return {rank: _log(columns, rank, usual, flags or {}) for rank in range(ranks)}


def _launched(
    columns: dict[str, np.ndarray], host_ms: float, extra: np.ndarray, place: str, step_ms: float, *, waits_first: bool
) -> None:
    """Replace the parts of a step by those of hosts that wait for their devices once a step.

    All devices begin a step together, need ``step_ms``, and longer if a host launches late.
    """
    noise = columns["after"] / np.median(columns["after"])
    parts = {"before": 0.2 * host_ms * noise, "forward": 0.3 * host_ms * noise, "backward": 0.5 * host_ms * noise}
    at = "backward" if place == "hidden" else place if place in parts else "before"
    parts[at] = parts[at] + extra
    launched = sum(parts.values())
    waits = np.maximum(launched.max(axis=0), step_ms * noise.mean(axis=0)) - launched
    after = np.zeros_like(extra) if waits_first else waits
    if waits_first:  # the step ends when it is launched, and the next one begins with the wait
        parts["before"] = parts["before"] + np.concatenate([waits[:, :1], waits[:, :-1]], axis=1)
    columns.update(parts, after=after, step=sum(parts.values()) + after)
    columns["input"] = extra if place == "input" else np.zeros_like(extra)
    for name in ("held", "held_backward", "cpu_backward", "issued"):
        columns[name] = np.zeros_like(extra)
    columns["cpu"] = launched - extra


def _log(columns: dict[str, np.ndarray], rank: int, usual: int, flags: dict[int, dict[int, int]]) -> StepTimes:
    steps = len(columns["step"][rank])
    entries = np.zeros(steps, ENTRY)
    for name in STEP_LOG_COLUMNS:
        entries[name] = (1e3 * columns[name][rank]).clip(0)
    entries["span"] = 1
    entries["flags"] = [usual | flags.get(step, {}).get(rank, 0) for step in range(steps)]
    return StepTimes(entries, np.ones(steps, np.int64))
