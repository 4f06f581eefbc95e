"""Workers, and what they have not finished, are gone when the process that started them is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.rundir.files import temporary_beside, temporary_folder
from rankscope.worker_pool import worker_pool

LIMIT_S = 120.0
CALLER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from rankscope.cli.parts.signals import unwound_by_signals
from rankscope.rundir.files import temporary_beside
from rankscope.worker_pool import worker_pool
from test_worker_pool import begins
if __name__ == "__main__":
    where = Path(sys.argv[1])
    with unwound_by_signals(), temporary_beside(where / "own") as own, worker_pool(1) as pool:
        own.touch()
        pool.submit(begins, where).result()
"""


def begins(where: Path) -> None:
    """Begin a file and a folder, and never end."""
    with temporary_beside(where / "file") as file, temporary_folder() as folder:
        file.touch()
        (where / "begun").write_text(f"{os.getpid()} {folder}")
        while True:
            time.sleep(1)


def number(value: int) -> int:
    return value


def until(done: object) -> None:
    limit = time.monotonic() + LIMIT_S
    while not done():  # type: ignore[operator]
        assert time.monotonic() < limit
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def begun(where: Path) -> tuple[int, Path]:
    until(lambda: (where / "begun").exists() and (where / "begun").read_text().count("/"))
    pid, _, folder = (where / "begun").read_text().partition(" ")
    return int(pid), Path(folder)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_caller_that_is_ended_leaves_no_worker_and_no_unfinished_file(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "caller.py"
    script.write_text(CALLER)
    where = tmp_path / "where"
    where.mkdir()
    words = [sys.executable, str(script), str(where), "--", str(Path(__file__).parent), *filter(None, sys.path)]
    caller = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    pid, folder = begun(where)
    caller.send_signal(how)
    _, said = caller.communicate(timeout=LIMIT_S)
    assert caller.returncode == -how
    assert "Traceback" not in said
    until(lambda: gone(pid))
    left = [path.name.split(".")[1] for path in where.iterdir() if path.name != "begun"]
    assert left == ([] if how == signal.SIGTERM else ["own"])  # nobody can remove its own after SIGKILL
    assert not folder.exists()


def test_a_block_that_fails_does_not_wait_for_its_workers(tmp_path: Path) -> None:
    def interrupted() -> None:
        with worker_pool(1) as pool:
            pool.submit(begins, tmp_path)
            begun(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gone(begun(tmp_path)[0])
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


def test_work_that_was_submitted_is_done() -> None:
    with worker_pool(1) as pool:
        results = [pool.submit(number, value) for value in range(3)]
    assert [result.result() for result in results] == [0, 1, 2]
