"""Detection of a job that makes no progress: the helper of a node notices that no rank makes steps, and asks the ranks.

Before the first step it waits longer, and ranks write their stage (:mod:`rankscope.agent.startup_stages`).

It asks twice, some seconds apart. If a frame, a call, or a step has changed in between, the cause is a slow evaluation,
checkpoint or compilation and not a standstill. No signal is sent and no training thread is affected; see
:mod:`rankscope.agent.answers`. While the job stands still the ranks are asked again, at growing intervals.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from rankscope.errors import ForeignFileError
from rankscope.node.gathering.gather import own_record
from rankscope.node.watching.from_outside import (
    cpu_beside_main_thread,
    main_thread_cpu,
    process_state,
    times_switched_out,
    waits_in_kernel,
)
from rankscope.node.watching.outside_stacks import OutsideStacks
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.records.running.hang import NodeAnswers, RankAnswer, RankState, Stage
from rankscope.rundir.files import replace_text
from rankscope.rundir.record_files import read_record
from rankscope.rundir.spool import Spool
from rankscope.stuck.verdict import waits_for_others

__all__ = ["StandstillWatch", "place_answers"]

USUAL_STEPS = 20
"""A standstill lasts longer than this many usual steps, whatever their duration."""
STARTS_WITHIN = 5
"""Before the first step, while models are built, loaded and compiled, the limit is this many times ``hang.after_s``."""
BETWEEN_QUESTIONS_S = 4.0
ANSWERS_WITHIN_S = 3.0


Counts = dict[tuple[int, int], int]
"""A number for each rank, by attempt and rank."""


@dataclass(slots=True)
class _Rank:
    """State of one rank of this node."""

    process: RankRecord
    steps: int = 0
    since: float = 0.0
    """Monotonic time of its last step."""
    usual_s: float = 0.0
    """Seconds per step, recently."""
    looked: tuple[float, int] | None = None
    stage: str = ""
    """Its stage on the way to its first step."""


@dataclass(slots=True)
class _Round:
    """A round of two questions, and when its next action is due."""

    asked: bool
    due: float
    first: dict[int, RankState] = field(default_factory=dict)
    stage: int = 0
    states: dict[int, RankState] = field(default_factory=dict)


def place_answers(path: Path, found: NodeAnswers) -> None:
    """Write the answers. If steps have continued, that is added to the existing file, which keeps the earlier answers.

    Raises:
        OSError: it cannot be written.
    """
    if found.resumed and not found.ranks:
        try:
            found = dataclasses.replace(read_record(NodeAnswers, path), resumed=True)
        except ForeignFileError:
            return
    replace_text(path, to_json(found))


class StandstillWatch:
    """Called often by the helper; does a little each time and never waits.

    Args:
        spool: of this node.
        after_s: as configured; 0: only when a user asks.
        proc: mount point of procfs.
        clock: seconds, monotonic.
        outside: reads the stacks of ranks that do not answer.
    """

    def __init__(
        self,
        spool: Spool,
        after_s: float,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        outside: OutsideStacks | None = None,
    ) -> None:
        self._spool = spool
        self._after_s = after_s
        self._proc = proc
        self._clock = clock
        self._ranks: dict[int, _Rank] = {}
        self._attempt = -1
        self._round: _Round | None = None
        self._begun = float("-inf")
        """When the last round began."""
        self._token = 0
        self._again_at: float | None = None
        self._pause_s = 0.0
        self._outside = outside if outside is not None else OutsideStacks(spool.path)
        self.wanted = False
        """Whether a user asks now."""
        self.found: NodeAnswers | None = None
        """The last answers, until they are taken."""

    def look(self, counts: Counts, ends: Counts | None = None) -> None:
        """Note the progress of the ranks, and ask them if it is due.

        Args:
            counts: steps logged so far, by attempt and rank.
            ends: end of the last of them, in ns on CLOCK_REALTIME, where it is known: a rank writes the steps of half a
                second at once, and those that it has not written when it is asked.
        """
        now = self._clock()
        self._note(counts, ends or {}, now)
        if self._round is not None:
            self._go_on(now)
        elif self.wanted:
            self.wanted = False
            self._begin(now, asked=True)
        elif self._stands_still(now):
            self._begin(now, asked=False)

    def look_back(self, counts: Counts, ends: Counts | None = None) -> None:
        """Note the progress of the ranks once the job is over; no rank is asked any more."""
        self._note(counts, ends or {}, self._clock())

    def _note(self, counts: Counts, ends: Counts, now: float) -> None:
        known = {**_without_steps(self._spool), **counts}
        attempt = max((attempt for attempt, _ in known), default=-1)
        if attempt != self._attempt:
            self._is_over()  # the ranks were started again
            self._attempt, self._ranks, self._round = attempt, {}, None
        moved = False
        for (of, number), steps in known.items():
            if of != attempt:
                continue
            rank = self._ranks.get(number)
            if rank is None:
                process = own_record(self._spool.process_record(attempt, number))
                if process is None or (process.status == "missing" and not steps):  # no process there counts steps
                    continue
                rank = self._ranks[number] = _Rank(process, steps, now)
            if steps > rank.steps:
                end = ends.get((attempt, number), 0)
                made = now - max(time.time_ns() - end, 0) / 1e9 if end else now
                moved |= made > self._begun
                if rank.looked is not None:
                    rank.usual_s = max(made - rank.looked[0], 0.0) / max(steps - rank.looked[1], 1)
                rank.steps, rank.since, rank.looked = steps, max(rank.since, made), (made, steps)
            elif not steps and (stage := self._stage(number)) != rank.stage:
                moved = True
                rank.stage, rank.since = stage, now
        if moved:
            self._is_over()

    def _is_over(self) -> None:
        """Note, if a standstill was found, that it is over."""
        if self._again_at is None:
            return
        self._again_at = None
        waiting = self.found  # not placed yet, on a busy machine
        over = self._answers({}, asked=False, resumed=True)
        self.found = over if waiting is None else dataclasses.replace(waiting, resumed=True)

    def _stage(self, number: int) -> str:
        try:
            words = self._spool.stage(self._attempt, number).read_text(encoding="utf-8").split()
        except (OSError, ValueError):
            return ""
        return words[0] if words and words[0] in get_args(Stage) else ""

    def _stands_still(self, now: float) -> bool:
        alive = [rank for rank in self._ranks.values() if self._is_alive(rank)]
        trained = [rank for rank in alive if rank.steps > 1]
        if not self._after_s or not alive:
            return False
        limit = max([self._after_s, *(USUAL_STEPS * rank.usual_s for rank in trained)])
        if not trained:
            limit = STARTS_WITHIN * self._after_s
        if now - max(rank.since for rank in trained or alive) < limit:
            return False
        if self._again_at is None:
            self._pause_s = limit
        elif now < self._again_at:
            return False
        return True

    def _is_alive(self, rank: _Rank) -> bool:
        state = process_state(self._proc, rank.process.pid)
        return bool(state) and state != "Z"

    # ------------------------------------------------------------ a round of two questions

    def _begin(self, now: float, *, asked: bool) -> None:
        self._round, self._begun = _Round(asked, now + ANSWERS_WITHIN_S), now
        self._ask()

    def _go_on(self, now: float) -> None:
        running = self._round
        if running is None or (now < running.due and not (running.stage == 2 and self._all_answered())):
            return
        if running.stage == 0:
            running.first = self._states()
            running.stage, running.due = 1, now + BETWEEN_QUESTIONS_S - ANSWERS_WITHIN_S
        elif running.stage == 1:
            self._ask()
            running.stage, running.due = 2, now + ANSWERS_WITHIN_S
        elif running.stage == 2:
            running.states = self._compared(running)
            silent = [s.pid for s in running.states.values() if s.answer is None and s.state not in ("", "Z", "X")]
            self._outside.look_at(silent)
            running.stage, running.due = 3, now
        elif self._outside.done():
            for state in running.states.values():
                state.stacks = self._outside.found.get(state.pid, [])
            self._end(running, now)

    def _compared(self, running: _Round) -> dict[int, RankState]:
        """Return the second answers, with the changes since the first."""
        states = self._states()
        for number, state in states.items():
            if (before := running.first.get(number)) is not None:
                state.advances = _advances(before, state)
                state.cpu_s = max(state.cpu_s - before.cpu_s, 0.0)
                state.switches = max(state.switches - before.switches, 0)
                state.others_s = max(state.others_s - before.others_s, 0.0)
        return states

    def _end(self, running: _Round, now: float) -> None:
        states = running.states.values()
        alive = any(state.state not in ("", "Z", "X") for state in states)  # else the job has just ended
        # Processes that make no steps at all may serve requests or prepare data, so at least one has to wait for
        # others.
        waits = any(state.steps for state in states) or any(waits_for_others(state) for state in states)
        if alive and (running.asked or waits):
            self.found = self._answers(running.states, asked=running.asked)
        self._round = None
        if not running.asked:
            self._pause_s *= 2
            self._again_at = now + self._pause_s

    def _ask(self) -> None:
        self._token += 1
        for number in self._ranks:
            with contextlib.suppress(OSError):  # it does not listen, or is gone
                pipe = os.open(self._spool.question(self._attempt, number), os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(pipe, b"%d\n" % self._token)
                finally:
                    os.close(pipe)

    def _all_answered(self) -> bool:
        return all(self._answer(number) is not None for number in self._ranks)

    def _answer(self, number: int) -> RankAnswer | None:
        try:
            found = read_record(RankAnswer, self._spool.answer(self._attempt, number))
        except ForeignFileError:
            return None
        return found if found.token == self._token else None

    def _states(self) -> dict[int, RankState]:
        now, found = self._clock(), {}
        others = cpu_beside_main_thread(self._proc, [rank.process.pid for rank in self._ranks.values()])
        for number, rank in self._ranks.items():
            pid = rank.process.pid
            found[number] = RankState(
                rank=number, pid=pid, state=process_state(self._proc, pid), steps=rank.steps,
                idle_s=max(now - rank.since, 0.0), answer=self._answer(number), stage="" if rank.steps else rank.stage,
                cpu_s=main_thread_cpu(self._proc, pid), others_s=others[pid],
                switches=times_switched_out(self._proc, pid), kernel=waits_in_kernel(self._proc, pid),
            )  # fmt: skip
        return found

    def _answers(self, states: dict[int, RankState], *, asked: bool, resumed: bool = False) -> NodeAnswers:
        world = max((rank.process.world_size for rank in self._ranks.values()), default=1)
        return NodeAnswers(
            node="", attempt=max(self._attempt, 0), world_size=world, time_ns=time.time_ns(),
            after_s=self._after_s, asked=asked, resumed=resumed, ranks=[states[number] for number in sorted(states)],
        )  # fmt: skip


def _without_steps(spool: Spool) -> dict[tuple[int, int], int]:
    """Return the ranks whose processes have begun, by attempt and number, each with 0 steps."""
    found = {}
    for path in spool.process_records():
        attempt, number = path.stem.split("_")[1:]
        found[int(attempt), int(number)] = 0
    return found


def _advances(before: RankState, after: RankState) -> bool:
    """Return whether something has changed between two answers of a rank."""
    first, second = before.answer, after.answer
    if first is None or second is None:  # the first answer may have brought steps of before
        return first is second and after.steps != before.steps
    if first.steps != second.steps:
        return True
    frames = [[s.frames for s in answer.stacks if s.training] for answer in (first, second)]
    calls = [[(c.group, c.seq, c.name, c.done) for c in answer.calls] for answer in (first, second)]
    return frames[0] != frames[1] or calls[0] != calls[1] or first.part != second.part
