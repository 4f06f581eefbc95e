"""An elastic job that a node joins: all ranks start again, which torchrun does not count as a restart."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from doors.doors import JOBS, PYTHON, RANKSCOPE, TORCHRUN
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.rundir.layout import RunDir
from support.ending import ending
from support.launching import environment, flags_of, free_port
from support.node import until

ENDS_WITHIN_S = 250.0
"""For a test that fails, and not a measure of anything."""
SETTINGS = [f"schedule.{key}" for key in ("skip_first=2", "wait=1", "warmup=1", "active=5")] + [
    "analysis.enabled=false"
]
pytestmark = [pytest.mark.doors, pytest.mark.long, pytest.mark.timeout(850)]


@pytest.mark.parametrize(("door", "to"), [("run", "folder"), ("exec", "folder"), ("run", "store")])
def test_each_round_of_a_growing_job_has_windows_of_its_own(door: str, to: str, tmp_path: Path) -> None:
    run, out = RunDir(tmp_path / "RUN"), tmp_path / "out"
    run_dir = run.path.as_uri() if to == "store" else run.path
    # torch 2.13 keeps the store's address over rounds, and a node that joins waits for it in vain without this
    env = environment() | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    ours = flags_of(f"run.dir={run_dir}", *SETTINGS)
    place = ["--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-id", "job9", "--rdzv-backend", "c10d"]
    place += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--monitor-interval", "0.5"]
    command = {
        "run": [*RANKSCOPE, "run", *ours, *place],
        "exec": [*TORCHRUN[:3], *place, "--no-python", *RANKSCOPE, "exec", *ours, PYTHON],
    }[door]
    words = [*command, str(JOBS / "elastic.py"), str(out)]

    def said(of: str) -> str:
        return (tmp_path / f"{of}.log").read_text(errors="replace")[-4000:]

    with contextlib.ExitStack() as stack:
        nodes: dict[str, subprocess.Popen[bytes]] = {}
        for name, ranks in (("first", ["0_of_1"]), ("second", ["0_of_2", "1_of_2"])):
            with (tmp_path / f"{name}.log").open("w") as log:
                nodes[name] = stack.enter_context(ending(subprocess.Popen(words, env=env, stdout=log, stderr=log)))
            begun = [Path(f"{out}.{rank}") for rank in ranks]
            until(
                lambda b=begun: all(f.exists() for f in b) or any(p.poll() is not None for p in nodes.values()),
                ENDS_WITHIN_S,
            )
            assert all(f.exists() for f in begun), (said("first"), name)
            until(lambda: list(run.live_folder.glob("*.json")), ENDS_WITHIN_S)  # by it the second learns of the first
        Path(f"{out}.over").touch()
        assert [node.wait(ENDS_WITHIN_S) for node in nodes.values()] == [0, 0], (said("first"), said("second"))
    until(run.manifest.exists, ENDS_WITHIN_S)
    manifest = from_json(RunManifest, run.manifest.read_bytes())
    assert [
        (w.attempt, r.rank, r.world_size, r.status, r.first_step, r.last_step)
        for w in manifest.windows
        for r in w.records
    ] == [(0, 0, 1, "ok", 4, 8), (1, 0, 2, "ok", 4, 8), (1, 1, 2, "ok", 4, 8)]
    assert [(life.attempt, life.rank, life.world_size) for life in manifest.lives] == [(0, 0, 1), (1, 0, 2), (1, 1, 2)]
