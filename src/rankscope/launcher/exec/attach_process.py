"""The process that begins or joins a run for ``rankscope.attach``: ``rankscope.launcher.exec.attach_process REQUEST``.

A training process starts it, and it exits at once, so that the node's helper is not a child of the training process. It
prints one line of JSON: the spool and the run directory, or why nothing is recorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from rankscope.launcher.exec.join import join, sign_in, spool_of
from rankscope.launcher.run_plan import RunPlan, name_of, place_of
from rankscope.records.codec import from_json, to_json
from rankscope.records.spec import AgentSpec
from rankscope.rundir.claim import NodeClaim
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["main"]


def main(request: dict[str, Any]) -> dict[str, str]:
    """Begin or join a run.

    Args:
        request: ``key``, which processes of this run on this node share; ``launch``, the same on all nodes, or null if
            there is one node; ``run_dir``; ``overrides``; ``argv``; ``pid``, the process whose end is waited for.

    Returns:
        ``spool`` and ``run_dir``.
    """
    spool = spool_of(request["key"])
    join(spool, lambda: _begin(spool, request))
    sign_in(spool, request["pid"])
    run_dir = ""
    with contextlib.suppress(OSError, ValueError):  # its store has not answered yet
        run_dir = from_json(NodeClaim, spool.claimed.read_bytes()).run_dir
    return {"spool": str(spool.path), "run_dir": run_dir}


def _begin(spool: Spool, request: dict[str, Any]) -> None:
    from rankscope.compose import compose
    from rankscope.launcher.job import begin

    composed = compose(request["overrides"], [])
    composed.config.refuse_experiment()
    run_dir, store = place_of(composed.config)
    launch = request["launch"]
    plan = RunPlan(
        run_id=name_of(run_dir, store) if launch else None, run_dir=run_dir, node=None,
        launch=launch or request["key"], alone=launch is None, store=store,
    )  # fmt: skip
    begin(plan, composed.config, argv=request["argv"], plain=composed.plain, spool=spool, ends_with_ranks=True)
    spec = from_json(AgentSpec, spool.spec.read_bytes())
    spec.reaches_other_nodes = launch is not None
    replace_text(spool.spec, to_json(spec))


if __name__ == "__main__":
    try:
        os.chdir(json.loads(sys.argv[1])["cwd"])
        answer = main(json.loads(sys.argv[1]))
    except Exception as error:
        answer = {"error": " ".join(f"{error}".split()) or type(error).__name__}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
