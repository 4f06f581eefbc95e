"""Runs of a sweep in sequence; shell commands replace them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankscope.records.sweep import SweepSetting
from rankscope.sweeps import work
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.local import Stop
from rankscope.sweeps.work import Launch, go_on, missing

from .conftest import plan

Shell = Callable[[str], list[str]]


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDir:
    found = SweepDir(tmp_path / "sweep")
    found.begin(plan(25, 1, repeats=2), shown="sweep")
    return found


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    """What each run executes: a line for the shell, with the words of `rankscope run` as its arguments."""
    asked: list[str] = []

    def make(line: str) -> list[str]:
        def command(module: str, *words: str) -> list[str]:
            asked.append(" ".join(words))
            return ["sh", "-c", line, "run", *words]

        monkeypatch.setattr(work, "command", command)
        return asked

    return make


def run_all(sweep: SweepDir, launch: Launch, stop: Stop | None = None) -> list[str]:
    said: list[str] = []
    todo = missing(sweep.plan(), sweep, failed_again=False)
    with (stop or Stop()).watching() as watching:
        go_on(todo, launch, sweep, watching, said.append, whole=4)
    return said


def test_a_run_that_fails_ends_itself_only(sweep: SweepDir, shell: Shell) -> None:
    asked = shell(
        'echo "$*"; case "$*" in *cap_mb=1*) echo "ValueError: boom"; '
        'echo "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"; exit 3;; esac'
    )
    said = run_all(
        sweep, Launch(flags=["--nproc-per-node", "2"], overrides=["schedule=short"], script=["a b.py", "-x"])
    )
    assert [line.partition(":")[0] for line in said] == [
        "1/4 bucket_cap_mb=25, run 1",
        "2/4 bucket_cap_mb=1, run 1",
        "3/4 bucket_cap_mb=1, run 2",
        "4/4 bucket_cap_mb=25, run 2",
    ]
    assert "failed with exit code 3; ValueError: boom; see " in said[1]
    first = sweep.path / "setting_001_run_01"
    assert asked[0] == (
        f"run --nproc-per-node 2 -S schedule=short -S script.bucket_cap_mb=25 -S run.dir={first} a b.py -x"
    )
    assert sweep.log(first).read_text().startswith("run --nproc")
    assert {place: job.exit_code for place, job in sweep.ended().items()} == {
        (1, 1): 0,
        (2, 1): 3,
        (2, 2): 3,
        (1, 2): 0,
    }


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What is started in the background of a script ignores Ctrl-C, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_ends_the_run_and_what_has_ended_is_kept(sweep: SweepDir, shell: Shell, tmp_path: Path) -> None:
    """The second run waits until it is interrupted, and says that it was: it gets the signal though we alone did."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waits = f"trap 'echo interrupted; exit 130' INT; echo > {pipe}; while :; do sleep 0.1; done"
    shell(f'case "$*" in *cap_mb=1*) {waits};; esac')
    stop = Stop()

    def interrupt() -> None:
        pipe.read_text()  # once it waits
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    said = run_all(sweep, Launch(script=["train.py"]), stop)
    thread.join()
    assert stop.signal == signal.SIGINT
    assert len(said) == 1
    assert list(sweep.ended()) == [(1, 1)]
    assert sweep.log(sweep.path / "setting_002_run_01").read_text() == "interrupted\n"
    # and goes on, in a folder that nobody has used
    asked = shell("exit 0")
    assert [line[:4] for line in run_all(sweep, Launch(script=["train.py"]))] == ["2/4 ", "3/4 ", "4/4 "]
    assert "setting_002_run_01_try_2" in asked[2]


def test_a_folder_with_odd_characters_is_one_word_of_hydras_grammar(tmp_path: Path) -> None:
    from rankscope.compose import compose

    run = tmp_path / "it's, a=b (c) \\ d"
    words = Launch().words(SweepSetting(number=1, name="", overrides=[]), run)
    assert compose([words[-1]]).config.run.dir == str(run)


def test_two_processes_do_not_work_on_one_sweep(sweep: SweepDir) -> None:
    from rankscope.errors import RunDirError

    with sweep.lock(), pytest.raises(RunDirError, match="another process works on"), sweep.lock():
        pass
