"""The helper process of a node: gather what ranks announce until standard input ends, then once more, and report.

``python -m rankscope.node SPOOL RUN_DIR NODE``. It keeps out of the training's way (lowest priority) and in a session
of its own, so that Ctrl-C ends the job and not the rescue of its traces. A launcher that dies ends standard input too.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
from pathlib import Path

from rankscope.errors import RankscopeError
from rankscope.model import RankRecord, to_json
from rankscope.node.gather import gather_ready, read_lives
from rankscope.node.manifest import NodeResult
from rankscope.rundir import RunDir, Spool, write_new

_POLL_S = 0.2


def serve(spool: Spool, run_dir: RunDir, node: str) -> None:
    """Gather until standard input ends; then leave this node's result in the run directory."""
    records: list[RankRecord] = []
    notes: list[str] = []
    finished = False
    while not finished:
        ready, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        finished = bool(ready) and not os.read(sys.stdin.fileno(), 4096)
        try:
            records += gather_ready(spool, run_dir)
        except (OSError, RankscopeError) as error:
            if finished:
                notes.append(f"{node}: traces stay in {spool.path}: {error}")
    result = NodeResult(node=node, host=socket.gethostname(), lives=read_lives(spool), records=records, notes=notes)
    write_new(run_dir.node_result(node), to_json(result))


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(19)
    serve(Spool(Path(sys.argv[1])), RunDir(Path(sys.argv[2])), sys.argv[3])
