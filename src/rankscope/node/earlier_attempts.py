"""Number of attempts of a job before this node joined it, from what the other nodes have written.

An elastic job restarts all its ranks when a node joins. Ranks of the earlier nodes know that theirs is a new attempt.
Ranks of the new node have to be told, or two attempts would be taken for one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from rankscope.errors import RankscopeError
from rankscope.records.running.live import NodeLive
from rankscope.rundir.files import replace_text
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from rankscope.rundir.spool import Spool

__all__ = ["attempts_before", "tell_of_attempts"]


def tell_of_attempts(spool: Spool, run_dir: RunDir, in_store: Iterable[str] = ()) -> None:
    """Tell the ranks of this node, which have not started, how many attempts there were. Raises nothing.

    Args:
        spool: of this node.
        run_dir: of the run, or this node's part of it.
        in_store: names of files that are in the store of the run.
    """
    with contextlib.suppress(OSError):  # their attempt then counts as the first
        if count := attempts_before(run_dir, in_store):
            replace_text(spool.earlier, str(count))


def attempts_before(run_dir: RunDir, in_store: Iterable[str] = ()) -> int:
    """Return the number of the last attempt in which a rank of another node made steps, plus one; 0 without any.

    Raises:
        OSError: the run directory cannot be read.
    """
    seen = {-1}
    folders = {path.name for path in run_dir.path.glob("attempt_*")} | {name.partition("/")[0] for name in in_store}
    for name in folders:
        with contextlib.suppress(ValueError):
            seen.add(int(name.removeprefix("attempt_")))
    for path in run_dir.live_folder.glob("*.json"):
        with contextlib.suppress(RankscopeError, OSError, ValueError):  # being written at this moment, or absent
            live = read_record(NodeLive, path)
            if any(rank.steps > 0 for rank in live.ranks):
                seen.add(live.attempt)
    return max(seen) + 1
