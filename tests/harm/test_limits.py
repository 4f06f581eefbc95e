"""Jobs with hardly any free resources train as under torchrun, recorded or with a message why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.rundir.layout import RunDir
from support.launching import RANKSCOPE, TORCHRUN, environment, flags_of

pytestmark = [pytest.mark.dist, pytest.mark.long]

TRAIN = """
    import os, resource, sys
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(24):
        loss = model(torch.randn(4, 16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        {each}
    os.write(1, f"trained {{loss.item().hex()}}\\n".encode())
"""


@pytest.fixture
def both(tmp_path):
    """The same job under torchrun and under us, each begun by some words of a shell; who else it runs as, and where."""

    def both(before="true", *, each="pass", prefix=(), cwd=None, run="RUN", env=None):
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(TRAIN).format(each=each))
        where = flags_of(f"run.dir={tmp_path / run}") if run else []
        ours = [*RANKSCOPE, *flags_of("schedule.skip_first=3", "analysis.enabled=false"), *where]
        done = []
        for launcher in (TORCHRUN, ours):
            command = [*launcher, "--standalone", "--nproc-per-node", 1, script]
            words = [*prefix, "sh", "-c", f'{before} && exec "$@"', "sh", *command]
            done.append(
                subprocess.run(
                    [str(word) for word in words], cwd=cwd or tmp_path, env=environment() | (env or {}), text=True,
                    capture_output=True, check=False, timeout=200,
                )
            )  # fmt: skip
        theirs, mine = done
        assert theirs.returncode == 0, theirs.stderr
        assert mine.returncode == 0, mine.stderr
        assert mine.stdout.splitlines() == theirs.stdout.splitlines()
        assert "trained" in mine.stdout
        return mine.stderr

    return both


def status(run: Path) -> list[tuple[str, str | None]]:
    (window,) = from_json(RunManifest, RunDir(run).manifest.read_bytes()).windows
    return [(record.status, record.reason) for record in window.records]


@pytest.fixture
def as_a_user(tmp_path) -> list[str]:
    """The words that make RLIMIT_NPROC hold, which it does not for the superuser: a user that nobody else is."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    user = 200_000 + os.getpid()
    os.chown(tmp_path, user, user)
    words = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]
    words += ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]  # a Python below /root may be run
    if subprocess.run([*words, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("nobody else can be had here")
    return words


NO_MORE = "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))"


@pytest.mark.parametrize("step", [0, 8], ids=["from the start", "inside a window"])
def test_no_process_or_thread_may_be_started_any_more(both, tmp_path, as_a_user, step):
    both(each=f"{NO_MORE} if step == {step} else None", prefix=as_a_user, env={"TMPDIR": str(tmp_path)})
    ((said, reason),) = status(tmp_path / "RUN")
    assert said == "ok" or "Resource temporarily unavailable" in reason


def test_few_processes_are_left_to_the_job(both, tmp_path, as_a_user):
    said = both("prlimit --nproc=60 --pid $$", prefix=as_a_user, env={"TMPDIR": str(tmp_path)})
    assert "not recording" in said
    assert "processes or threads are left of the limit of 60 (ulimit -u)" in said


def test_few_file_handles_are_left_to_the_job(both):
    assert "file descriptors are left of the limit of 60 (ulimit -n)" in both("ulimit -n 60")


def mounted(*steps: str) -> tuple[list[str], str]:
    """A mount namespace of one's own, and what is run in it first."""
    return ["unshare", "--user", "--map-root-user", "--mount"], " && ".join(steps)


@pytest.fixture
def may_mount(tmp_path):
    words, steps = mounted(f"mount -t tmpfs tmpfs {tmp_path}")
    if subprocess.run([*words, "sh", "-c", steps], check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system may be mounted here")


FULL = "{ head -c 1m /dev/zero > /dev/shm/full 2>/dev/null; true; }"


@pytest.mark.parametrize("spool", ["elsewhere", "there"])
def test_a_full_shared_memory(both, may_mount, tmp_path, spool):
    prefix, before = mounted("mount -t tmpfs -o size=64k tmpfs /dev/shm", FULL)
    env = {"TMPDIR": "/dev/shm" if spool == "there" else str(tmp_path)}
    both(before, prefix=prefix, env=env)  # Python looks for another folder where that takes no file
    assert status(tmp_path / "RUN") == [("ok", None)]


@pytest.mark.parametrize("run", ["RUN", None], ids=["elsewhere", "there"])
def test_a_folder_that_takes_no_file_no_home_and_a_strict_umask(both, may_mount, tmp_path, run):
    place = tmp_path / "place"
    place.mkdir()
    prefix, before = mounted(
        f"mount --bind {place} {place}", f"mount -o remount,ro,bind {place}", f"cd {place}", "umask 077", "unset HOME"
    )
    said = both(before, prefix=prefix, run=run)
    if run is None:  # runs are kept in the current folder where no other is named
        assert "not recording" in said
        assert "Read-only file system" in said
        return
    assert status(tmp_path / "RUN") == [("ok", None)]
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "RUN").rglob("*")}
    assert modes == {0o700, 0o600}
