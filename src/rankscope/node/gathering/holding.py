"""Traces that stay on their node, compressed, until the verdict decides which of them are kept.

Their columns are in the run directory already. A trace leaves the spool only if it is in the run directory and was read
back, or if a decision in the run directory does not name its rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from rankscope.errors import RunDirError
from rankscope.node.gathering.disk_limits import DiskLimits
from rankscope.node.gathering.packing import pack
from rankscope.node.gathering.placing import Placing
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import RankRecord
from rankscope.records.running.node_task import KeptTraces
from rankscope.rundir.files import replace_text, temporary_beside
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["Holding"]

_NAME = re.compile(r"held_(\d+)_(\d+)_(\d+)\.trace\.json\.gz")


class Holding:
    """Retains traces of one node.

    Args:
        spool: of this node.
        run_dir: of the run.
        placing: places files.
        limits: limits of what may be written.
        moved: called with each number of bytes that was handled.
    """

    def __init__(
        self,
        spool: Spool,
        run_dir: RunDir,
        placing: Placing,
        limits: DiskLimits,
        moved: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._spool, self._run_dir, self._placing, self._limits, self._moved = spool, run_dir, placing, limits, moved
        self.left: dict[str, str] = {}
        """Name of each file of the spool that has to be kept and could not be placed -> why."""

    def hold(self, trace: Path, record: RankRecord) -> None:
        """Compress a trace into the spool, and set what was found in its record.

        Raises:
            OSError: it cannot be written to the node's own disk. The trace is left unchanged.
        """
        target = self._spool.held(record.attempt, record.window or 0, record.rank)
        with temporary_beside(target) as temporary:
            pack(trace, temporary, self._moved).tell(record)
            temporary.replace(target)

    def settle(self, kept: KeptTraces | None, placed: int = 0) -> int:
        """Place the traces that are kept, and remove the others. Those that cannot be placed stay; see :attr:`left`.

        Args:
            kept: the decision. None: none was made, and all traces are placed.
            placed: bytes of traces that this node has placed so far.

        Returns:
            How many traces were placed.
        """
        count = 0
        for path in self._spool.holds():
            attempt, window, rank = self._place_in(path)
            if kept is not None and kept.ranks is not None and rank not in kept.ranks:
                path.unlink()
                continue
            target = self._run_dir.trace(attempt, window, rank)
            try:
                size = path.stat().st_size
                self._placing.folder(target.parent)
                self._limits.require(target.parent, size, placed, packed=True)
                self._placing.copy(path, target)
                self._tell(attempt, window, rank, target)
                path.unlink()
            except (OSError, RunDirError) as error:
                self.left[path.name] = (isinstance(error, OSError) and error.strerror) or str(error)
                continue
            placed, count = placed + size, count + 1
            self._moved(size)
        return count

    def _tell(self, attempt: int, window: int, rank: int, target: Path) -> None:
        """Update the record of a rank whose trace is placed now: its columns do not replace it."""
        path = self._spool.placed(attempt, window, rank)
        record = from_json(RankRecord, path.read_bytes())
        record.columns, record.sha256 = None, self._placing.sum_of(target)
        self._placing.again(self._run_dir.record(attempt, window, rank), to_json(record))
        replace_text(path, to_json(record))

    @staticmethod
    def _place_in(path: Path) -> tuple[int, int, int]:
        match = _NAME.fullmatch(path.name)
        assert match is not None, path
        return int(match[1]), int(match[2]), int(match[3])
