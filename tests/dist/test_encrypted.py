"""An encrypted run of two nodes, during and after the job."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from rankscope.rundir.layout import RunDir
from support.launching import JOBS, LIMIT_S, RANKSCOPE, flags_of, free_port

pytestmark = pytest.mark.forked
pyrage = pytest.importorskip("pyrage")

VERB = [sys.executable, "-m", "rankscope"]
OPEN = ("audit.jsonl", ".claim.json", "launch.json", "request_0000.json", "question")


def test_files_of_two_nodes_cannot_be_read_without_the_key(start, finish, tmp_path):
    # GIVEN two launchers of one job, which is encrypted for one recipient
    identity = pyrage.x25519.Identity.generate()
    (tmp_path / "key.txt").write_text(f"{identity}\n")
    key = ["--identity", tmp_path / "key.txt"]
    run, stop = RunDir(tmp_path / "RUN"), tmp_path / "Zquonk-stop"
    settings = [f"run.dir={run.path}", f"store.encrypt=[{identity.to_public()}]", "schedule.skip_first=1000000"]
    words = [
        *("--nnodes", 2, "--nproc-per-node", 1, "--rdzv-id", "job7", "--rdzv-backend", "c10d"),
        *("--rdzv-endpoint", f"localhost:{free_port()}", *flags_of(*settings), "-S", "gather.timeout_s=300"),
        *(JOBS / "steady.py", "--until", stop),
    ]

    def verb(*words):
        said = [*VERB, *map(str, words)]
        return subprocess.run(said, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    nodes = [start([*RANKSCOPE, *words]) for _ in range(2)]
    deadline = time.monotonic() + LIMIT_S
    while len(list(run.live_folder.glob("*.json.age"))) < 2 and time.monotonic() < deadline:
        assert [node.poll() for node in nodes] == [None, None]
        time.sleep(0.1)
    # WHEN it is asked how it is doing, and for a window, with the key and without
    assert "--identity" in verb("status", run.path).stderr
    live = json.loads(verb("status", run.path, "--json", *key).stdout)
    assert sorted(rank["rank"] for node in live for rank in node["ranks"]) == [0, 1]
    asked = verb("capture", run.path, "--steps", 2, "--timeout", LIMIT_S, *key)
    assert (asked.returncode, "2 of 2 ranks" in asked.stdout) == (0, True), (asked.stdout, asked.stderr)
    stuck = verb("why-stuck", run.path, "--timeout", LIMIT_S, *key)
    assert stuck.stdout.startswith("Stuck"), stuck.stderr
    stop.touch()
    assert [finish(node).code for node in nodes] == [0, 0]
    # THEN nothing lies open but who takes part and what was asked for
    for path in run.path.rglob("*"):
        if path.is_file() and not path.name.endswith(OPEN):
            assert path.read_bytes().startswith(b"age-encryption.org/v1"), path
        assert not path.is_file() or b"Zquonk" not in path.read_bytes(), path
    # AND with the key it is one run
    report = json.loads(verb("analyze", run.path, "--no-hta", "--format", "json", *key).stdout)
    assert [(rank["rank"], rank["status"]) for rank in report["ranks"]] == [(0, "ok"), (1, "ok")]
    assert "Zquonk-stop" in " ".join(report["run"]["command"])
    assert verb("verify", run.path, *key).returncode == 0
