"""Real jobs in difficult environments run as under torchrun, and run.json and the report are written."""

from __future__ import annotations

import gzip
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.rundir.layout import RunDir
from support.launching import RANKSCOPE, TORCHRUN, environment, flags_of, free_port
from support.node import until

DDP = """
import os, sys, time
import torch, torch.distributed as dist
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, word = dist.get_rank(), sys.argv[1]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[2])):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 32)).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(float(sys.argv[3]))
    if step == 1:
        open(f"{word}.begun.{rank}", "w").write(str(os.getpid()))
open(f"{word}.{rank}", "w").write(loss.item().hex())
dist.barrier()
dist.destroy_process_group()
"""
SECRETS = [f"s3cr3t-{number}" for number in range(6)]


@pytest.fixture
def job(tmp_path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(DDP)
    return path


def settings(run: Path, *more: str) -> list[str]:
    return flags_of(f"run.dir={run}", "schedule=short", "analysis.hta=false", *more)


@pytest.mark.dist
def test_a_job_from_a_bad_place_is_the_same_and_is_reported(job, tmp_path):
    # GIVEN a folder full of modules that are not what they are called, no HOME, closed standard streams, and a command
    # line full of secrets
    trap, marker = tmp_path / "trap", tmp_path / "marker"
    trap.mkdir()
    for name in ("gzip", "json", "socket", "hashlib", "pathlib", "tempfile", "shutil", "select", "numpy"):
        (trap / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\n")
    given = ["--api-key", SECRETS[0], f"--token={SECRETS[1]}", f"db.password={SECRETS[2]}", "--db",
             f"postgres://me:{SECRETS[3]}@host/base"]  # fmt: skip
    env = environment() | {"WANDB_API_KEY": SECRETS[4], "HF_TOKEN": SECRETS[5]}
    env.pop("HOME", None)
    run = tmp_path / "RUN"
    script = Path(sys.executable).parent
    losses = {}
    for name, command in {
        "torchrun": [str(script / "torchrun")],
        "rankscope": [str(script / "rankscope"), "run", *settings(run)],
    }.items():
        word = tmp_path / name
        words = [*command, "--standalone", "--nproc-per-node", "2", str(job), str(word), "12", "0", *given]
        closed = ["sh", "-c", 'umask 022; exec "$@" <&- >&- 2>&-', "sh"]
        done = subprocess.run([*closed, *words], cwd=trap, env=env, check=False)
        assert done.returncode == 0
        losses[name] = [(tmp_path / f"{name}.{rank}").read_text() for rank in (0, 1)]
    # THEN the job is the same to the last bit, and nothing of that folder was run
    assert losses["torchrun"] == losses["rankscope"]
    assert not marker.exists(), marker.read_text()
    # AND there are run.json and report, private, without a secret
    assert (run / "report" / "report.html").exists()
    manifest = from_json(RunManifest, RunDir(run).manifest.read_bytes())
    assert [r.status for r in manifest.windows[0].records] == ["ok", "ok"]
    assert "--api-key" in manifest.argv
    for path in run.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        if path.is_file():
            content = path.read_bytes()
            content += gzip.decompress(content) if path.suffix == ".gz" else b""
            assert [secret for secret in SECRETS if secret.encode() in content] == [], path


SEES = """
import json, os, sys
other = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE")
mine = {k: v for k, v in os.environ.items() if k not in other}
json.dump([sys.path, sorted(mine.items()), sorted(m for m in sys.modules if "rankscope" in m)], open(sys.argv[1], "w"))
"""


@pytest.mark.dist
@pytest.mark.parametrize("value", ["1", pytest.param("yes", marks=pytest.mark.long)])
def test_switched_off_it_is_torchrun(tmp_path, value):
    script = tmp_path / "sees.py"
    script.write_text(SEES)
    env = environment() | {"RANKSCOPE_DISABLE": value}
    seen = {}
    for name, command in {
        "ours": [*RANKSCOPE, *settings(tmp_path / "RUN"), "-S", "no.such.key=1"],
        "theirs": TORCHRUN,
    }.items():
        words = [*command, "--nproc-per-node", "1", str(script), str(tmp_path / name)]
        done = subprocess.run(words, cwd=tmp_path, env=env, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "rankscope:" not in done.stderr
        seen[name] = (tmp_path / name).read_text()
    assert seen["ours"] == seen["theirs"]
    assert not (tmp_path / "RUN").exists()


def running(job: Path, tmp_path: Path, *more: str, steps: int = 400) -> subprocess.Popen[bytes]:
    """A job of two ranks that is past its first steps."""
    words = ["--standalone", "--nproc-per-node", "2", str(job), str(tmp_path / "word"), str(steps), "0.05"]
    command = [*RANKSCOPE, *settings(tmp_path / "RUN", *more), *words]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE)
    until(lambda: process.poll() is not None or all((tmp_path / f"word.begun.{rank}").exists() for rank in (0, 1)))
    assert process.poll() is None, process.stderr.read().decode()
    return process


@pytest.mark.dist
def test_a_launcher_that_is_killed_leaves_run_json_and_report(job, tmp_path):
    process, run = running(job, tmp_path, steps=60), RunDir(tmp_path / "RUN")
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()
    until(lambda: (run.report / "report.html").exists(), 200)
    manifest = from_json(RunManifest, run.manifest.read_bytes())
    assert manifest.exit_code is None
    assert sorted(life.rank for life in manifest.lives) == [0, 1]
    assert [r.status for r in manifest.windows[0].records] == ["ok", "ok"]  # the ranks had trained on


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


@pytest.mark.dist
@pytest.mark.long
def test_scancel_leaves_run_json_and_report(job, tmp_path):
    # GIVEN a running job, whose every process gets SIGTERM, and SIGKILL what is left after 30 s
    process, run = running(job, tmp_path), RunDir(tmp_path / "RUN")
    everyone = [process.pid, *descendants(process.pid)]
    for pid in everyone:
        os.kill(pid, signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1, said.decode()
    until(lambda: (run.report / "report.html").exists(), 30)
    assert from_json(RunManifest, run.manifest.read_bytes()).exit_code == 1


@pytest.mark.dist
@pytest.mark.long
def test_sigusr1_ends_it_as_it_ends_torchrun(job, tmp_path):
    process, run = running(job, tmp_path, steps=60), RunDir(tmp_path / "RUN")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == -signal.SIGUSR1  # of which torchrun dies, too
    process.stderr.close()
    until(lambda: run.manifest.exists(), 200)


@pytest.mark.dist
@pytest.mark.long
def test_all_attempts_of_a_restart_storm_are_reported(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("import torch, sys\nsys.exit(3)\n")
    codes = {}
    for name, command in {"ours": [*RANKSCOPE, *settings(tmp_path / "RUN")], "theirs": TORCHRUN}.items():
        words = [*command, "--standalone", "--nproc-per-node", "2", "--max-restarts", "4", str(script)]
        codes[name] = subprocess.run(
            words, cwd=tmp_path, env=environment(), check=False, capture_output=True
        ).returncode
    assert codes["ours"] == codes["theirs"] == 1
    manifest = from_json(RunManifest, RunDir(tmp_path / "RUN").manifest.read_bytes())
    assert (manifest.attempts, manifest.exit_code) == (5, 1)


@pytest.mark.dist
@pytest.mark.long
@pytest.mark.parametrize("phase", ["start", "steps", "report"])
def test_sigterm_in_each_phase_ends_it_as_it_ends_torchrun(job, tmp_path, phase):
    run = RunDir(tmp_path / "RUN")
    if phase == "start":  # while torchrun, or we, still load
        codes = []
        for command in ([*RANKSCOPE, *settings(run.path)], TORCHRUN):
            process = subprocess.Popen([*command, str(job)], cwd=tmp_path, env=environment())
            until(lambda pid=process.pid: b"torch" in Path(f"/proc/{pid}/maps").read_bytes())
            process.terminate()
            codes.append(process.wait(60))
        assert codes[0] == codes[1] == -signal.SIGTERM
        assert not run.manifest.exists()
    elif phase == "steps":
        process = running(job, tmp_path)
        process.terminate()
        process.communicate(timeout=100)
        assert process.returncode == 1
        until(lambda: (run.report / "report.html").exists(), 60)
    else:  # the job is over, with 0, and is not made to fail by what follows
        process = running(job, tmp_path, steps=10)
        until(lambda: run.manifest.exists())
        process.terminate()
        process.communicate(timeout=100)
        assert process.returncode == 0
        until(lambda: (run.report / "report.html").exists(), 60)


@pytest.mark.dist
@pytest.mark.long
def test_a_lost_node_ends_the_job_as_under_torchrun(job, tmp_path):
    # GIVEN two nodes, of which the one without rank 0 is switched off when a window has been gathered
    run, codes = RunDir(tmp_path / "RUN"), []
    ours = [*RANKSCOPE, *settings(run.path, "schedule.repeat=1", "gather.timeout_s=5", "analysis.enabled=false")]
    for name, launcher in {"theirs": TORCHRUN, "ours": ours}.items():
        word = tmp_path / name
        port = free_port()
        place = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", name]
        words = [*launcher, *place, "--nproc-per-node", "1", str(job), str(word), "2000", "0.05"]
        nodes = [
            subprocess.Popen(words, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL, start_new_session=True)
            for _ in range(2)
        ]
        begun = [tmp_path / f"{name}.begun.{rank}" for rank in (0, 1)]
        until(lambda begun=begun: all(path.exists() and path.read_text() for path in begun), 120)
        if name == "ours":
            until(lambda: run.record(0, 0, 0).exists(), 120)
        pid = int(begun[1].read_text())
        (lost,) = [node for node in nodes if pid in descendants(node.pid)]
        (left,) = [node for node in nodes if node is not lost]
        for process in (lost.pid, *descendants(lost.pid)):
            os.kill(process, signal.SIGKILL)
        lost.wait()
        codes.append(left.wait(200))
    assert codes[0] == codes[1] == 1
    manifest = from_json(RunManifest, run.manifest.read_bytes())
    assert manifest.exit_code == 1
    assert manifest.windows[0].records[0].status == "ok"
    assert manifest.windows[0].records[1].status == "missing"
    assert any("left no result within 5 s" in note for note in manifest.notes)
