"""How many attempts of a job there were before this node came to it, from what the other nodes have left.

An elastic job that a node joins starts all its ranks again. Those of the nodes that were there before know that theirs
is another attempt; those of the new node have to be told, or two attempts would pass for one.
"""

from __future__ import annotations

import contextlib

from rankscope.errors import RankscopeError
from rankscope.records.running.live import NodeLive
from rankscope.rundir.files import replace_text
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from rankscope.rundir.spool import Spool

__all__ = ["attempts_before", "tell_of_attempts"]


def tell_of_attempts(spool: Spool, run_dir: RunDir) -> None:
    """Let the ranks of this node, which have not started, know how many attempts there were. Raises nothing."""
    with contextlib.suppress(OSError):  # theirs is then taken for the first
        if count := attempts_before(run_dir):
            replace_text(spool.earlier, str(count))


def attempts_before(run_dir: RunDir) -> int:
    """One more than the number of the last attempt in which a rank of another node has made steps; 0 where none has.

    Raises:
        OSError: the run directory cannot be read.
    """
    seen = {-1}
    for folder in run_dir.path.glob("attempt_*"):
        with contextlib.suppress(ValueError):
            seen.add(int(folder.name.partition("_")[2]))
    for path in run_dir.live_folder.glob("*.json"):
        with contextlib.suppress(RankscopeError, OSError, ValueError):  # written at this moment, or none
            live = read_record(NodeLive, path)
            if any(rank.steps > 0 for rank in live.ranks):
                seen.add(live.attempt)
    return max(seen) + 1
