"""Convert traces to columns on the node that recorded them, if only these are kept: one process, one window at a time.

All state is on the disk. A window is done when the list of its ranks is in the spool: their columns are then in the run
directory, and were read back. Traces that could not be converted are placed unchanged, so nothing is lost by a process
that fails.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankscope import own_process
from rankscope.errors import RunDirError
from rankscope.node.gathering.disk_limits import DiskLimits
from rankscope.node.gathering.placing import Placing
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import RankRecord
from rankscope.records.running.node_task import ReducedRanks, ReduceTask
from rankscope.rundir.files import replace_text
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["Reducing"]

# Named, not imported: the helper imports only the standard library.
_MODULE = "rankscope.reduced.of_node"
_LEAST_S = 300.0
_BYTES_A_S = 2e6
"""Expected bytes per second, a fiftieth of what a core reads, because the core may be busy with training."""
_AGAIN_S = 5.0
"""Between two attempts to place columns."""

Key = tuple[int, int]


@dataclass(slots=True)
class _Running:
    key: Key
    process: subprocess.Popen[bytes]
    deadline: float


class Reducing:
    """Converts the windows of a node, one after the other, without blocking the caller.

    Args:
        spool: of this node.
        run_dir: of the run.
        node: its name there.
        placing: places files.
        limits: limits of what may be written.
        note: called with errors.
        last_s: longest time once the job has ended, because the launcher then waits for it.
        clock: in seconds, monotonic.
    """

    def __init__(
        self,
        spool: Spool,
        run_dir: RunDir,
        node: str,
        placing: Placing,
        limits: DiskLimits | None = None,
        note: Callable[[str], None] = lambda _: None,
        last_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool, self._run_dir, self._node, self._placing = spool, run_dir, node, placing
        self._limits, self._note, self._last_s, self._clock = limits or DiskLimits(), note, last_s, clock
        self._ends, self._last = math.inf, False
        self._running: _Running | None = None
        self._given_up: set[Key] = set()
        self._unplaced: dict[Key, ReducedRanks] = {}
        """Windows whose columns are made, and had no room in the run directory."""
        self._again = 0.0

    @property
    def object_name(self) -> str:
        """Name of the objects of this node."""
        return self._run_dir.columns(0, 0, self._node).name

    def look(self, records: list[RankRecord], *, last: bool) -> None:
        """Start conversions that are possible, and place those that are complete. Never waits.

        Args:
            records: announced, and not yet in the run directory.
            last: the job has ended, and no more traces come.
        """
        self._last = last
        if last:
            self._ends = min(self._ends, self._clock() + self._last_s)
        if self._running is not None:
            self._follow(self._running)
        if self._unplaced and (last or self._clock() >= self._again):
            for key, done in list(self._unplaced.items()):
                self._try_to_place(key, done)
        if self._running is None:
            windows: dict[Key, list[RankRecord]] = {}
            for record in records:
                if record.trace is not None and record.window is not None:
                    windows.setdefault((record.attempt, record.window), []).append(record)
            for key, own in sorted(windows.items()):
                if (
                    key not in self._given_up
                    and key not in self._unplaced
                    and not self._done(key)
                    and (last or self._all_here(key, own))
                ):
                    self._begin(key, own)
                    return

    def state(self, record: RankRecord) -> str:
        """Return ``waits``: it may still be reduced; ``reduced``: its columns are placed; ``whole``: its trace is
        kept."""
        key = (record.attempt, record.window or 0)
        if self._done(key):
            return "reduced" if record.rank in self._ranks(key) else "whole"
        return "whole" if key in self._given_up else "waits"

    def _done(self, key: Key) -> bool:
        return self._spool.reduced(*key).exists()

    def _ranks(self, key: Key) -> list[int]:
        return from_json(ReducedRanks, self._spool.reduced(*key).read_bytes()).ranks

    def _trace(self, record: RankRecord) -> Path:
        return self._spool.path / Path(record.trace or "").name

    def _all_here(self, key: Key, records: list[RankRecord]) -> bool:
        """Return whether every rank of this node has announced the window and written its trace."""
        due = len(list(self._spool.path.glob(f"life_{key[0]}_*.json")))
        return len(records) >= due and all(self._trace(record).exists() for record in records)

    def _begin(self, key: Key, records: list[RankRecord]) -> None:
        if self._clock() >= self._ends:
            self._give_up(key, "the job had ended, and there was no time left to reduce them")
            return
        here = [record for record in records if self._trace(record).exists()]
        traces = [self._trace(record) for record in here]
        task = ReduceTask(
            attempt=key[0], window=key[1], target=str(self._spool.columns(*key)), ranks=[r.rank for r in here],
            names=[self._run_dir.trace(*key, r.rank).name for r in here], traces=[str(path) for path in traces],
        )  # fmt: skip
        path = self._spool.columns(*key).with_suffix(".task")
        try:
            replace_text(path, to_json(task))
            process = subprocess.Popen(
                own_process.command(_MODULE, str(path)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                env=own_process.environment(), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._give_up(key, str(error.strerror or error))
            return
        limit = _LEAST_S + sum(path.stat().st_size for path in traces) / _BYTES_A_S
        self._running = _Running(key, process, self._clock() + limit)

    def _follow(self, running: _Running) -> None:
        if (code := running.process.poll()) is None:
            if self._clock() < min(running.deadline, self._ends):
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
        self._running = None
        assert running.process.stdout is not None
        with running.process.stdout as stream:
            output = stream.read()
        if code != 0:
            how = "took too long" if code is None else f"ended with code {code}"
            self._give_up(running.key, f"the process that reduces them {how}")
            return
        try:
            done = from_json(ReducedRanks, output)
        except ValueError as error:
            self._give_up(running.key, f"their columns could not be placed: {error}")
            return
        self._try_to_place(running.key, done)

    def _try_to_place(self, key: Key, done: ReducedRanks) -> None:
        """Place the columns of a window. Without room for them this is tried again until the job has ended."""
        self._unplaced.pop(key, None)
        try:
            self._place(key, done)
        except (OSError, RunDirError) as error:
            if isinstance(error, OSError) and not self._last:
                self._unplaced[key], self._again = done, self._clock() + _AGAIN_S
                return
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._give_up(key, f"their columns could not be placed: {why}")

    def _place(self, key: Key, done: ReducedRanks) -> None:
        made, target = self._spool.columns(*key), self._run_dir.columns(*key, self._node)
        if done.ranks:
            self._placing.folder(target.parent)
            self._limits.require(target.parent, 0, 0, beside=made.stat().st_size)
            self._placing.copy(made, target)
        replace_text(self._spool.reduced(*key), to_json(done))
        made.unlink()

    def _give_up(self, key: Key, why: str) -> None:
        self._given_up.add(key)
        self._note(f"{self._node}: the traces of attempt {key[0]}, window {key[1]} are kept whole: {why}")
