"""``rankscope exec``: its arguments, its signals, and how several of a node form one run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rankscope.config import RunConfig, ToolConfig
from rankscope.errors import ConfigError
from rankscope.launcher.exec import launch
from rankscope.launcher.exec.command import Command
from rankscope.launcher.exec.join import Refused, join, sign_in, spool_of
from rankscope.launcher.exec.left_running import left_running
from rankscope.launcher.exec.plan import is_elastic, parse_exec, plan_of
from rankscope.rank_identity import Identity
from rankscope.rundir.spool import ENV_SPEC, Spool
from support.node import until

COMMAND = """
import sys
from rankscope.launcher.exec.command import Command
ending = Command(sys.argv[1:]).run({"MINE": "1", "GONE": None})
ending.leave()
sys.exit(ending.exit_code)
"""


def run(*words: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_words_before_the_command_are_ours_and_all_others_are_its_own() -> None:
    found = parse_exec(
        ["-S", "a=1", "-Sb=2", "--set=c=3", "--config-dir", "d", "mpirun", "-n", "2", "-S", "x", "--help"]
    )
    assert found.overrides == ["a=1", "b=2", "c=3"]
    assert found.config_dirs == [Path("d")]
    assert found.command == ["mpirun", "-n", "2", "-S", "x", "--help"]
    assert parse_exec(["--", "-odd"]).command == ["-odd"]
    assert parse_exec(["--help", "x"]).command == []


@pytest.mark.parametrize("words", [[], ["-S"], ["--nproc-per-node", "2", "x"], ["-S", "a=1"]])
def test_what_cannot_be_meant_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="rankscope exec --help"):
        parse_exec(words)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ("kill -SEGV $$", -11)],
)
def test_it_ends_as_the_command_ended(script: str, code: int) -> None:
    process = run("sh", "-c", script)
    process.communicate(timeout=60)
    assert process.returncode == code


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [("/no/such", 127, "No such file"), ("", 127, "No such file"), ("/etc", 126, "Permission")],
)
def test_a_command_that_is_none(command: str, code: int, said: str) -> None:
    process = run(command)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert said in err


BECOMES = "import sys; from rankscope.launcher.exec.command import become; become(sys.argv[1:], {})"


@pytest.mark.parametrize("way", [COMMAND, BECOMES], ids=["as a child", "in its place"])
def test_a_script_that_names_no_interpreter_is_the_shells(way: str, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text('echo "$0 $1"; exit 5\n')
    script.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", way, "train.sh", "a b"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, f"{script} a b\n", "")


def test_a_command_that_cannot_be_started_leaves_no_run(tmp_path: Path) -> None:
    ours = [sys.executable, "-m", "rankscope", "exec", "-S", f"run.dir={tmp_path / 'RUN'}"]
    done = subprocess.run([*ours, "/no/such"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (127, "rankscope: error: /no/such: No such file or directory\n")
    assert list(tmp_path.iterdir()) == []


def test_environment_and_streams_are_the_commands(monkeypatch) -> None:
    monkeypatch.setenv("GONE", "1")
    process = run("sh", "-c", 'echo "$MINE/$GONE"; cat; trap "" PIPE; echo end >&2', stdin=subprocess.PIPE)
    out, err = process.communicate("through\n", timeout=60)
    assert (out, err) == ("1/\nthrough\n", "end\n")


COUNTS = """
import os, signal, sys
came = []
# written at once, since handlers come within handlers
signal.signal(signal.SIGTERM, lambda *_: (came.append(1), os.write(1, b"term\\n")))
print("ready", flush=True)
sys.stdin.readline()
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Python ends with the default, and one may still be on its way
sys.exit(10 + len(came))
"""


@pytest.mark.parametrize("group", [False, True], ids=["to us alone", "to the group"])
def test_a_signal_reaches_the_command_once(group: bool) -> None:
    process = run(sys.executable, "-c", COUNTS, stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        (os.killpg if group else os.kill)(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "term\n"
    out, _ = process.communicate("\n", timeout=60)
    assert (process.returncode, out) == (12, "")


@pytest.mark.parametrize("group", [False, True], ids=["to us alone", "to the group"])
def test_signals_on_each_others_heels_hold_nothing_up_and_become_no_more(group: bool) -> None:
    process = run(sys.executable, "-c", COUNTS, stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    for _ in range(100):
        (os.killpg if group else os.kill)(process.pid, signal.SIGTERM)
    assert process.stdout.readline() == "term\n"
    process.communicate("\n", timeout=60)
    assert 1 <= process.returncode - 10 <= 100  # those that a process has not yet taken are one to it


def test_the_command_dies_with_us() -> None:
    process = run("sh", "-c", "echo $$; exec sleep 1000")
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text(), 60)
    process.stdout.close()
    process.stderr.close()


# ------------------------------------------------------------ several of a node


@pytest.fixture
def own_tmp(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_first_begins_and_all_others_join(own_tmp: Path) -> None:
    spool, begun, firsts = spool_of("launcher"), [], []
    threads = [
        threading.Thread(target=lambda: firsts.append(join(spool_of("launcher"), lambda: begun.append(1))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert begun == [1]
    assert sorted(firsts) == [False, False, False, True]
    assert spool_of("other") != spool
    sign_in(spool, os.getpid())
    (own,) = spool.joined_ones()
    assert own.read_text() == Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def test_what_stops_the_first_stops_all(own_tmp: Path) -> None:
    def wrong() -> None:
        raise ConfigError("schedule.active=0")

    with pytest.raises(ConfigError):
        join(spool_of("launcher"), wrong)
    with pytest.raises(Refused, match=r"schedule.active=0") as refused:
        join(spool_of("launcher"), lambda: pytest.fail("it is begun again"))
    assert refused.value.exit_code == ConfigError.exit_code


def test_a_folder_of_another_user_is_not_used(own_tmp: Path) -> None:
    path = spool_of("launcher").path
    path.chmod(0o755)
    with pytest.raises(PermissionError):
        spool_of("launcher")
    path.rmdir()
    path.symlink_to(own_tmp)
    with pytest.raises(PermissionError):
        spool_of("launcher")


def test_what_a_command_leaves_running_is_told(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert left_running(spool) is None
    env = os.environ | {ENV_SPEC: str(spool.spec)}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=env) as left:
        # GIVEN no rank so far: it may become one
        assert f"processes that it has started still run (process {left.pid})" in left_running(spool)
        # GIVEN a rank that has ended: what is left is a helper of a framework, say
        spool.owner(0, 0).write_text("1 1")
        assert left_running(spool) is None
        # GIVEN a rank that still runs
        spool.owner(0, 1).write_text(f"{left.pid} 1")
        assert f"its ranks still run (process {left.pid})" in left_running(spool)
        left.stdin.close()


def test_which_run_a_rank_belongs_to() -> None:
    here, shared = ToolConfig(), ToolConfig(run=RunConfig(dir="/shared/first"))
    alone = plan_of(None, here, {}, "")
    assert (alone.alone, alone.launch != plan_of(None, here, {}, "").launch) == (True, True)
    node = plan_of(Identity("mpirun", 1, 2, 1, 2), here, {}, "process 7")
    assert (node.alone, node.launch, node.run_dir) == (True, "process 7", None)
    several = Identity("srun", 5, 8, 1, 4, 2, "41 0")
    plan = plan_of(several, shared, {"SLURM_RESTART_COUNT": "2"}, "process 7")
    assert (plan.alone, plan.launch, plan.run_id) == (False, "srun 41 0 2", "first")
    with pytest.raises(ConfigError, match=r"run\.dir"):
        plan_of(several, here, {}, "process 7")
    with pytest.raises(ConfigError, match="no name"):
        plan_of(Identity("mpirun", 5, 8, 1, 4, 2), shared, {}, "process 7")


@pytest.mark.parametrize(
    ("command", "environ", "elastic"),
    [
        ("torchrun --nnodes 1:2 train.py", "", True),
        ("torchrun --nnod=2:4 train.py", "", True),
        ("torchrun train.py", "PET_NNODES=1:2", True),
        ("torchrun --nnodes 2 train.py", "", False),
        ("torchrun --nnodes 2:2 train.py 1:2", "A=1:2", False),
        ("torchrun --nnodes", "", False),
    ],
)
def test_a_torchrun_whose_nodes_come_and_go_is_known_by_its_command_line(
    tmp_path: Path, command: str, environ: str, elastic: bool
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    (tmp_path / "7" / "environ").write_text(environ)
    assert is_elastic("process 7 begun 1 boot 2", tmp_path) is elastic
    assert not is_elastic("process 8 begun 1 boot 2", tmp_path)


def test_nodes_of_an_elastic_job_are_one_run_whatever_the_address_of_its_store(monkeypatch) -> None:
    shared = ToolConfig(run=RunConfig(dir="/shared/first"))
    monkeypatch.setattr("rankscope.launcher.exec.plan.is_elastic", lambda _launcher: True)
    lone, grown = Identity("torchrun", 0, 1, 0, 1, 1, "j a 1"), Identity("torchrun", 1, 2, 0, 1, 2, "j b 2")
    plans = [plan_of(one, shared, {"TORCHELASTIC_RUN_ID": "j"}, f"process {n}") for n, one in enumerate((lone, grown))]
    assert plans[0] == plans[1]
    assert not plans[0].alone


@pytest.fixture
def handlers():
    """Handlers of this process are what they were, after the test."""
    before = {number: signal.getsignal(number) for number in (*signal.Signals,)}
    yield
    for number, handler in before.items():
        if handler is not None and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_signal_after_the_end_of_the_command_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command(["true"])
    assert command.run({}).exit_code == 0
    asked = []
    monkeypatch.setattr("rankscope.launcher.exec.command.os.kill", lambda *words: asked.append(words))
    signal.raise_signal(signal.SIGUSR1)
    assert asked == []  # its number may be another process's by now


@pytest.mark.usefixtures("handlers")
def test_who_ends_the_job_does_not_wait_for_what_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Helper:
        asked = 0

        def let_go(self) -> None:
            pass

        def next_message(self, _wait_s: float) -> None:
            self.asked += 1
            if self.asked == 3:
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(launch, "_AFTER_SIGNAL_S", 0.0)
    command, helper = Command(["true"]), Helper()
    assert command.run({}).exit_code == 0
    launch._see_off(helper, command, 1e9)
    assert command.stopped
    assert helper.asked in (3, 4)
