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
from rankscope.stuck.files import read_answers
from rankscope.stuck.verdict import why_stuck
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


def test_a_node_that_joins_a_job_that_stands_still_ends_the_standstill(tmp_path: Path) -> None:
    run, out = RunDir(tmp_path / "RUN"), tmp_path / "out"
    env = environment() | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    words = [*RANKSCOPE, "run", *flags_of(f"run.dir={run.path}", "hang.after_s=2", "analysis.enabled=false")]
    words += ["--nnodes", "1:2", "--rdzv-id", "job10", "--rdzv-backend", "c10d"]
    words += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--monitor-interval", "0.5", "--nproc-per-node"]

    def begins(name: str, ranks: int, stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name}.log").open("w") as log:
            command = [*words, str(ranks), str(JOBS / "elastic.py"), str(out), "2"]
            return stack.enter_context(ending(subprocess.Popen(command, env=env, stdout=log, stderr=log)))

    def said() -> str:
        return "\n".join(log.read_text(errors="replace")[-4000:] for log in sorted(tmp_path.glob("*.log")))

    with contextlib.ExitStack() as stack:
        # GIVEN a node whose two ranks stand still
        nodes = [begins("first", 2, stack)]
        until(lambda: read_answers(run) or nodes[0].poll() is not None, ENDS_WITHIN_S)
        (found,) = read_answers(run)
        stuck = why_stuck([found])
        assert stuck is not None, said()
        assert (stuck.kind, stuck.ranks, stuck.resumed) == ("not_entered", [1], False), stuck
        # WHEN another one joins, so that torchrun starts all ranks again
        nodes.append(begins("second", 1, stack))
        begun = [Path(f"{out}.{rank}_of_3") for rank in range(3)]
        until(lambda: all(f.exists() for f in begun) or any(p.poll() is not None for p in nodes), ENDS_WITHIN_S)
        assert all(f.exists() for f in begun), said()
        # THEN it is told as long as the job runs that it is over
        until(lambda: all(answers.resumed for answers in read_answers(run)), ENDS_WITHIN_S)
        assert all(answers.resumed for answers in read_answers(run)), said()
        Path(f"{out}.over").touch()
        assert [node.wait(ENDS_WITHIN_S) for node in nodes] == [0, 0], said()
    until(run.manifest.exists, ENDS_WITHIN_S)
    manifest = from_json(RunManifest, run.manifest.read_bytes())
    # AND what the job may fail of later is not blamed on it
    assert manifest.hang is not None
    assert manifest.hang.resumed
    lives = [(life.attempt, life.rank, life.world_size) for life in manifest.lives]
    assert lives == [(0, 0, 2), (0, 1, 2), (1, 0, 3), (1, 1, 3), (1, 2, 3)]
