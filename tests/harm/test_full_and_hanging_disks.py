"""Real jobs on disks that are full or do not answer, in a mount namespace of their own (needs `unshare`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.rundir.layout import RunDir
from support.launching import RANKSCOPE, environment, flags_of
from support.node import until

pytestmark = [pytest.mark.dist, pytest.mark.long]

FILLS = """
import os, sys, tempfile, time
import torch
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(400):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    if step == 40 and sys.argv[1] == "local":
        time.sleep(3)  # what windows left is gathered by now
        with open(os.path.join(tempfile.gettempdir(), "cache"), "wb", buffering=0) as cache:
            try:
                while True:
                    cache.write(bytes(512))
            except OSError as error:
                print("full:", error.strerror, flush=True)
print("DONE", flush=True)
"""


def unshared(command: list[object], mount: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    """In a mount namespace in which ``mount`` was run; what it says comes in one pipe."""
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]
    return subprocess.Popen(
        [str(word) for word in words], cwd=cwd, env=environment() | env, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def may_mount(tmp_path_factory):
    place = tmp_path_factory.mktemp("mount")
    with unshared(["true"], f"mount -t tmpfs tmpfs {place}", place) as tried:
        tried.communicate()
    if tried.returncode != 0:
        pytest.skip("no file system may be mounted here")


@pytest.mark.parametrize("full", ["local", "shared"])
def test_full_disks(may_mount, tmp_path, full):
    script, small, kept = tmp_path / "train.py", tmp_path / "small", tmp_path / "tmp"
    script.write_text(FILLS)
    small.mkdir()
    kept.mkdir()
    size, run, temporary = ("16m", tmp_path / "RUN", small) if full == "local" else ("200k", small / "RUN", kept)
    more = ["schedule.active=150", "gather.leave_free_gb=0"] if full == "shared" else []
    settings = flags_of(f"run.dir={run}", "analysis.hta=false", *more)
    command = [*RANKSCOPE, "--standalone", "--nproc-per-node", 1, *settings, script, full]
    with unshared(command, f"mount -t tmpfs -o size={size} tmpfs {small}", tmp_path, TMPDIR=str(temporary)) as job:
        said, _ = job.communicate(timeout=200)
    assert job.returncode == 0, said
    assert "DONE" in said
    if full == "local":
        assert "full: No space left on device" in said
        manifest = from_json(RunManifest, RunDir(run).manifest.read_bytes())
        assert [r.status for r in manifest.windows[0].records] == ["ok"]
    else:
        assert "not everything could be gathered: No space left on device" in said
        (spool,) = kept.glob("rankscope_*")
        assert str(spool) in said
        assert list(spool.glob("trace_*.json"))
        assert "what was recorded is in" not in said


HANGS = """
import ctypes, os, sys
path, begin, then = sys.argv[1], sys.argv[2], sys.argv[3:]
libc = ctypes.CDLL(None, use_errno=True)
if os.fork() == 0:
    import time
    for descriptor in (0, 1, 2):  # the test reads to the end of its pipe
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    while not os.path.exists(begin):
        time.sleep(0.05)
    handle = os.open("/dev/fuse", os.O_RDWR)  # whose requests nobody answers
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0".encode()
    assert libc.mount(b"hang", os.fsencode(path), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())
    open(begin + ".hangs", "w").close()
    while not os.path.exists(begin + ".over"):
        time.sleep(0.05)
    os._exit(0)  # the mount goes with the descriptor: whoever waits gets an error
if begin.endswith("before"):
    while not os.path.exists(begin + ".hangs"):
        pass
os.execv(then[0], then)
"""


@pytest.mark.parametrize("when", ["before", "middle"])
def test_hanging_store(may_mount, tmp_path, when):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no /dev/fuse here")
    script, hangs, disk, begin = tmp_path / "train.py", tmp_path / "hangs.py", tmp_path / "disk", tmp_path / when
    script.write_text(
        FILLS.replace("range(400)", "range(60)").replace("if step == 40", "time.sleep(0.1)\n    if step < 0")
    )
    hangs.write_text(HANGS)
    disk.mkdir()
    settings = flags_of(f"run.dir={disk / 'RUN'}", "schedule=short", "gather.timeout_s=5")
    command = [*RANKSCOPE, "--standalone", "--nproc-per-node", 1, *settings, script, "x"]
    if when == "before":
        begin.touch()
    with unshared([sys.executable, hangs, disk, begin, *command], "true", tmp_path, TMPDIR=str(tmp_path)) as job:
        if when == "middle":
            until(lambda: list(tmp_path.glob("rankscope_*/owner_*")))
            begin.touch()
        try:
            said, _ = job.communicate(timeout=120)
        finally:
            Path(f"{begin}.over").touch()
    assert job.returncode == 0, said
    assert "DONE" in said
    assert "did not answer within gather.timeout_s=5 s" in said
    (spool,) = tmp_path.glob("rankscope_*")
    assert str(spool) in said
    assert list(spool.glob("window_*.json"))
    # AND WHEN the store answers again
    command = [RANKSCOPE[0], "-m", "rankscope", "gather", spool]
    later = subprocess.run(
        [str(word) for word in command], env=environment(), capture_output=True, text=True, check=False
    )
    assert later.returncode == 0, later.stderr
    manifest = from_json(RunManifest, RunDir(disk / "RUN").manifest.read_bytes())
    assert [(r.status, r.trace is not None) for r in manifest.windows[0].records] == [("ok", True)]
    assert manifest.exit_code == 0
    assert not spool.exists()
