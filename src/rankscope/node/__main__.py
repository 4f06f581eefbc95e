"""The helper process of a node: gather what ranks announce until standard input ends, then once more, and report.

``python -m rankscope.node SPOOL RUN_DIR NODE``. It keeps out of the training's way (lowest priority) and in a session
of its own, so that Ctrl-C ends the job and not the rescue of its traces. A launcher that dies ends standard input too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import sys
from pathlib import Path

from rankscope.errors import RankscopeError
from rankscope.node.gather import gather_out_of_memory, gather_ready, read_lives
from rankscope.node.health.sampler import HealthWatch
from rankscope.node.kineto_server import answering
from rankscope.node.manifest import NodeResult
from rankscope.node.requests import RequestRelay
from rankscope.node.step_log import StepLogDrain
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import RankRecord
from rankscope.records.spec import AgentSpec
from rankscope.rundir.files import replace_text, write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

_POLL_S = 0.2
_SELDOM = 5
"""Every so many polls: what nobody waits for."""


def serve(spool: Spool, run_dir: RunDir, node: str) -> None:
    """Gather until standard input ends; then leave this node's result in the run directory."""
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        try:
            if from_json(AgentSpec, spool.spec.read_bytes()).kineto_socket is not None:
                stack.enter_context(answering(spool.path, spool.socket))
        except OSError as error:
            notes.append(f"libkineto could not be answered, windows are recorded by torch.profiler: {error}")
        with contextlib.suppress(OSError):
            os.nice(19)
        records = _gather(spool, run_dir, node, notes)
    result = NodeResult(node=node, host=socket.gethostname(), lives=read_lives(spool), records=records, notes=notes)
    write_new(run_dir.node_result(node), to_json(result))


def _gather(spool: Spool, run_dir: RunDir, node: str, notes: list[str]) -> list[RankRecord]:
    records: list[RankRecord] = []
    pulses, requests, health = StepLogDrain(spool), RequestRelay(spool, run_dir), HealthWatch.begin()
    for turn in itertools.count():
        ready, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        finished = bool(ready) and not os.read(sys.stdin.fileno(), 4096)
        try:
            new = gather_ready(spool, run_dir, last=finished, complete=health.attach)
            records += new
            if new:
                replace_text(spool.gathered, f"{_megabytes(run_dir, records):.3f}")
            if turn % _SELDOM == 0:
                requests.relay()
                pulses.drain()
            if finished:
                pulses.finish(run_dir)
                gather_out_of_memory(spool, run_dir)
        except (OSError, RankscopeError) as error:
            if finished:
                notes.append(f"{node}: traces stay in {spool.path}: {error}")
        if finished:
            break
    health.close()
    notes += health.notes
    return records


def _megabytes(run_dir: RunDir, records: list[RankRecord]) -> float:
    placed = [run_dir.trace(r.attempt, r.window or 0, r.rank) for r in records if r.trace is not None]
    return sum(path.stat().st_size for path in placed) / 1e6


if __name__ == "__main__":
    serve(Spool(Path(sys.argv[1])), RunDir(Path(sys.argv[2])), sys.argv[3])
