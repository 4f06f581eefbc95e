"""Current state of a node's ranks, from the step logs that the helper has drained from their rings."""

from __future__ import annotations

import contextlib
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.node.gathering.gather import own_record
from rankscope.records.codec import from_json
from rankscope.records.running.between import SlowPattern
from rankscope.records.running.live import NodeLive, RankLive
from rankscope.records.running.step_log import (
    FORWARD_CALLS,
    STEP_LOG_COLUMNS,
    STEP_LOG_ENTRY,
    STEP_LOG_HEADER,
    STEP_LOG_MAGIC,
    STEP_LOG_VERSION,
    WRAPPED,
)
from rankscope.records.spec import ScheduleSpec, Window
from rankscope.rundir.spool import Spool

__all__ = ["LiveStatus"]

LAST = 200
"""Number of last steps that the status covers."""
FEWEST = 20
JUDGED = 4_000
"""Number of last steps that are judged while the job runs; the report judges all."""
WORTH_RECORDING = ("every", "turns", "since", "drifting")
"""Patterns that continue, and that a planned window at the beginning does not show, or only by chance."""
PAUSE_S = 2.0
JUDGED_EVERY_S = 60.0
_HEADER = STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, STEP_LOG_VERSION, STEP_LOG_ENTRY.size, 0)
_STEP, _INPUT, _BEFORE, _FORWARD = map(STEP_LOG_COLUMNS.index, ("step", "input", "before", "forward"))
_SPAN, _FLAGS = -5, -4
_WAITED = tuple(STEP_LOG_COLUMNS.index(name) for name in ("backward", "cpu_backward", "held_backward", "issued"))


@dataclass(slots=True)
class _Rank:
    steps: int = 0
    since: float = 0.0
    world: int = 1
    device: str = ""
    uuid: str | None = None
    seconds: float = 0.0
    input_seconds: float = 0.0
    counted: int = 0
    entries: list[tuple[int, ...]] = field(default_factory=list)


class LiveStatus:
    """Called often by the helper; reads the ends of the logs every two seconds, and judges them once a minute.

    Args:
        spool: of this node.
        schedule: the planned windows.
        clock: seconds, monotonic.
    """

    def __init__(
        self, spool: Spool, schedule: ScheduleSpec | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._spool = spool
        self._schedule = schedule
        self._clock = clock
        self._ranks: dict[int, _Rank] = {}
        self._attempt = -1
        self._due = 0.0
        self._judge_at = clock() + JUDGED_EVERY_S
        self._judged = 0
        self._news: tuple[str, list[int]] = ("", [])
        self._wanted: set[tuple[object, ...]] = set()
        self.pattern: tuple[int, SlowPattern] | None = None
        """The attempt, and new steps that are worth recording, until it is taken."""
        self.found: NodeLive | None = None
        """The status, until it is taken."""

    def look(self, counts: dict[tuple[int, int], int], standstill: str = "") -> None:
        """Make a new status if it is due.

        Args:
            counts: steps logged so far, by attempt and rank.
            standstill: description of one that lasts; empty while steps are made.
        """
        now = self._clock()
        if now < self._due or not (counts or standstill):
            return
        self._due = now + PAUSE_S
        attempt = max((attempt for attempt, _ in counts), default=0)
        if attempt != self._attempt:
            self._attempt, self._ranks, self._news, self._judged = attempt, {}, ("", []), 0
        for (of, number), steps in counts.items():
            if of == attempt:
                self._read(number, steps, now)
        most = max((rank.steps for rank in self._ranks.values()), default=0)
        if now >= self._judge_at and most >= self._judged + LAST:
            self._judge_at, self._judged = now + JUDGED_EVERY_S, most
            self._judge()
        news, named = (standstill, []) if standstill else self._news
        window = self._window(min((rank.steps for rank in self._ranks.values()), default=0))
        self.found = NodeLive(
            node="",
            host=socket.gethostname(),
            attempt=attempt,
            world_size=max((rank.world for rank in self._ranks.values()), default=1),
            time_ns=time.time_ns(),
            ranks=[self._row(number, now) for number in sorted(self._ranks)],
            news=news,
            named=named,
            window_first=window.first if window is not None else None,
            window_last=window.last if window is not None else None,
        )

    def _window(self, steps: int) -> Window | None:
        """Return the window that is open, or is announced or else planned to come next; None if none is."""
        found = [self._schedule.next_window(steps)] if self._schedule is not None else []
        for path in self._spool.announcements(self._attempt):
            with contextlib.suppress(OSError, ValueError):
                found.append(from_json(Window, path.read_bytes()))
        ahead = [window for window in found if window is not None and window.last >= steps]
        return min(ahead, key=lambda window: window.first, default=None)

    def _log(self, number: int) -> Path:
        return self._spool.step_log(self._spool.step_ring(self._attempt, number))

    def _tail(self, number: int, entries: int) -> bytes:
        """Return the last entries of a rank's log."""
        path = self._log(number)
        size = path.stat().st_size - STEP_LOG_HEADER.size
        whole = size // STEP_LOG_ENTRY.size
        with path.open("rb") as stream:
            stream.seek(STEP_LOG_HEADER.size + max(whole - entries, 0) * STEP_LOG_ENTRY.size)
            return stream.read(min(whole, entries) * STEP_LOG_ENTRY.size)

    def _read(self, number: int, steps: int, now: float) -> None:
        rank = self._ranks.get(number)
        if rank is None:
            process = own_record(self._spool.process_record(self._attempt, number))
            rank = self._ranks[number] = _Rank(since=now)
            if process is not None:
                rank.world, rank.device, rank.uuid = process.world_size, process.device or "", process.device_uuid
        if steps == rank.steps:
            return
        rank.steps, rank.since = steps, now
        new = min(max(steps - rank.counted, 2 * LAST), JUDGED)
        entries = list(STEP_LOG_ENTRY.iter_unpack(self._tail(number, new)))
        for entry in entries[-(steps - rank.counted) :] if steps > rank.counted else ():
            rank.seconds += entry[_STEP] * entry[_SPAN] / 1e6
            rank.input_seconds += entry[_INPUT] * entry[_SPAN] / 1e6
        rank.counted = steps
        rank.entries = [entry for entry in entries[-2 * LAST :] if entry[_STEP]]

    def _row(self, number: int, now: float) -> RankLive:
        rank = self._ranks[number]
        row = RankLive(
            rank=number, steps=rank.steps, idle_s=max(now - rank.since, 0.0), seconds=rank.seconds,
            input_seconds=rank.input_seconds,
        )  # fmt: skip
        last, earlier = rank.entries[-LAST:], rank.entries[:-LAST]
        if last:
            row.step_ms = statistics.median(entry[_STEP] for entry in last) / 1e3
            row.own_ms = statistics.fmean(entry[_BEFORE] + entry[_FORWARD] for entry in last) / 1e3
            row.wait_pct = _wait_pct(last) if rank.device.startswith("cpu") else None
            row.input_pct = 100.0 * sum(entry[_INPUT] for entry in last) / sum(entry[_STEP] for entry in last)
        if len(earlier) >= FEWEST:
            row.before_ms = statistics.median(entry[_STEP] for entry in earlier) / 1e3
        return row

    def _judge(self) -> None:
        """Judge the step logs of this node so far. numpy is imported here, so that short runs do not import it."""
        from rankscope.between.judge import judge_logs
        from rankscope.between.step_logs import parse
        from rankscope.between.table import FIRST_STEPS

        logs = {}
        with contextlib.suppress(OSError, ValueError):
            for number in self._ranks:
                logs[number] = parse(_HEADER + self._tail(number, JUDGED), str(number))
        # The first step in the tails is the same on all ranks only if they have made the same number.
        fewest = min((rank.steps for rank in self._ranks.values()), default=0)
        begins = {number: self._ranks[number].steps - log.steps for number, log in logs.items()}
        first = max(begins.values(), default=0)
        logs = {number: log.between(first - begins[number], fewest - begins[number]) for number, log in logs.items()}
        devices = any(rank.device and not rank.device.startswith("cpu") for rank in self._ranks.values())
        used = [rank.uuid for rank in self._ranks.values() if rank.uuid]
        begin = max(FIRST_STEPS - first, 0)
        found = judge_logs(logs, begin, first, on_host=False, devices=devices, shared=len(used) > len(set(used)))
        named = [p for p in found.patterns if p.accuses]
        self._news = (named[0].sentence, list(found.ranks)) if named else ("", [])
        for pattern in named:
            key = (self._attempt, pattern.kind, *pattern.ranks, pattern.period)
            if pattern.kind in WORTH_RECORDING and key not in self._wanted:
                self._wanted.add(key)
                self.pattern = self._attempt, pattern
                return


def _wait_pct(entries: list[tuple[int, ...]]) -> float | None:
    """Return the share of the time in which a rank on a CPU waits in its backward; None if its parts are unknown."""
    known = [entry for entry in entries if entry[_FLAGS] & (WRAPPED | FORWARD_CALLS) == WRAPPED]
    if not known:
        return None
    waited = 0
    for entry in known:
        backward, ran, held, issued = (entry[at] for at in _WAITED)
        waited += max(backward - held - max(ran, issued - held), 0)
    return 100.0 * waited / max(sum(entry[_STEP] for entry in known), 1)
