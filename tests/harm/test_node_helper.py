"""Failures of node helper, launcher or store: run.json is written, and no recorded file is lost."""

from __future__ import annotations

import gzip
import itertools
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rankscope.agent.steps.step_log import StepLog
from rankscope.launcher.exec.join import sign_in
from rankscope.node.__main__ import OTHER_HELPER
from rankscope.node.helper import Helper
from rankscope.node.messages import Messages
from rankscope.own_process import command, environment
from rankscope.records.running.step_log import STEP_LOG_CAPACITY, STEP_LOG_ENTRY, STEP_LOG_HEADER
from support.ending import end, ending
from support.node import TRACE, Node, until


def whole(node: Node, ranks=(0, 1)) -> bool:
    """Whether run.json has a window with a trace of every rank, each beside its record."""
    (window,) = node.manifest.windows
    placed = all(node.run.trace(0, 0, rank).exists() and node.run.record(0, 0, rank).exists() for rank in ranks)
    return placed and [(r.rank, r.status) for r in window.records] == [(rank, "ok") for rank in ranks]


# ---------------------------------------------------------------- a helper that dies


def test_a_helper_that_is_killed_while_the_job_runs_is_followed_by_another(make):
    node = make().start()
    node.helper.watch()
    node.lives(0), node.lives(1)
    node.records(0)
    until(lambda: node.run.record(0, 0, 0).exists())
    dead = node.helper.pid
    node.kill()
    node.records(1)
    until(lambda: node.run.record(0, 0, 1).exists())  # without any word from the launcher
    assert node.helper.pid != dead
    node.end()
    assert whole(node)
    assert any("started again 1 time" in note for note in node.manifest.notes)
    assert not node.spool.path.exists()


def test_a_helper_that_no_launcher_watches_is_followed_by_another(make):
    # GIVEN `exec` before each rank: it has become the command, and the helper is nobody's child
    node = make(ends_with_ranks=True)
    sleeper = subprocess.Popen(["sleep", "600"])
    sign_in(node.spool, sleeper.pid)
    node.start(kept=True)
    node.helper.let_go()
    children = Path(f"/proc/{node.helper.pid}/task/{node.helper.pid}/children")
    (first,) = children.read_text().split()
    node.lives(0, pid=sleeper.pid), node.lives(1, pid=sleeper.pid)
    # WHEN it is killed, a rank leaves its window behind, and the last process ends
    os.kill(int(first), signal.SIGKILL)
    node.records(0), node.records(1)
    until(lambda: children.read_text().split() not in ([], [first]))
    end(sleeper)
    # THEN all is there, and nothing of ours goes on
    node.helper._process.wait(300)
    assert whole(node)
    assert any("started again 1 time" in note for note in node.manifest.notes)
    assert not node.spool.path.exists()


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.long), 2, pytest.param(3, marks=pytest.mark.long)])
def test_a_helper_that_is_killed_at_the_end_is_followed_by_another(make, times):
    node = make().start()
    node.lives(0), node.lives(1)
    for _ in range(times):
        node.kill()
        node.records(0), node.records(1)
        node.helper.next_message(0)  # notices it
    node.end()
    assert whole(node)
    assert node.manifest.exit_code == 0


def test_what_a_dead_helper_had_half_written_is_removed(make):
    node = make().start()
    node.lives(0), node.lives(1)
    node.records(0), node.records(1)
    until(lambda: node.run.record(0, 0, 1).exists())
    half = node.run.window(0, 0) / f".rank_00000.trace.json.gz.{os.uname().nodename}.{node.helper.pid}.tmp"
    half.write_text("half")
    foreign = half.with_name(".rank_00009.trace.json.gz.elsewhere.7.tmp")
    foreign.write_text("of another node that is alive")
    node.kill()
    node.end()
    assert (half.exists(), foreign.exists()) == (False, True)
    assert whole(node)


def test_there_is_one_helper_a_node(make):
    node = make().start()
    second = subprocess.run(
        command("rankscope.node", str(node.spool.path)), stdin=subprocess.DEVNULL, env=environment(), check=False
    )
    assert second.returncode == OTHER_HELPER
    node.lives(0, world=1)
    node.end()
    assert node.manifest.world_size == 1


def test_signals_that_end_a_job_do_not_end_its_rescue(make):
    node = make().start()
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU"):
        os.kill(node.helper.pid, getattr(signal, name))
    node.lives(0), node.lives(1)
    node.records(0), node.records(1)
    pid = node.helper.pid
    node.end(exit_code=1)
    assert node.helper.pid == pid
    assert whole(node)
    assert node.manifest.exit_code == 1


def test_memory_is_taken_from_the_helper_before_it_is_taken_from_a_rank(make):
    node = make().start()
    # and processors, once the run directory is claimed, for which the launch waits
    threads = Path(f"/proc/{node.helper.pid}/task")
    until(lambda: {os.getpriority(os.PRIO_PROCESS, int(t.name)) for t in threads.iterdir()} == {19})
    assert int(Path(f"/proc/{node.helper.pid}/oom_score_adj").read_text()) == 900


# ---------------------------------------------------------------- what lies where the helper looks


def fifo(path):
    os.mkfifo(path)


JUNK = {
    "an empty ring": lambda node: (node.spool.path / "pulse_0_7").touch(),
    "a ring that is a FIFO": lambda node: fifo(node.spool.path / "pulse_0_8"),
    "a ring that counts without end": lambda node: (node.spool.path / "pulse_0_9").write_bytes(b"\xff" * 64),
    "a ring with no numbers": lambda node: (node.spool.path / "pulse_x_y").write_bytes(b"\1" + b"\0" * 63),
    "a record that is a folder": lambda node: node.spool.record(0, 3, 0).mkdir(),
    "a record that is a FIFO": lambda node: fifo(node.spool.record(0, 4, 0)),
    "a record of noise": lambda node: node.spool.record(0, 5, 0).write_bytes(os.urandom(999)),
    "a life of noise": lambda node: node.spool.process_record(0, 5).write_bytes(os.urandom(999)),
    "a life of a huge world": lambda node: node.spool.process_record(0, 6).write_text(
        '{"rank": 6, "local_rank": 6, "world_size": 99999999, "host": "h", "pid": 1, "attempt": 0}'
    ),
    "a snapshot with no numbers": lambda node: (node.spool.path / "memory_oom_x_y.pickle").touch(),
    "a request of other types": lambda node: request(node, 0).write_text('{"name": "r", "steps": "many", "warmup": 2}'),
    "a request that is a FIFO": lambda node: fifo(request(node, 1)),
    "a request without an end": lambda node: request(node, 2).symlink_to("/dev/zero"),
    "a file where requests should be": lambda node: node.run.request_folder.touch(),
}
SILENT = "a file where requests should be"
"""It is no request, and nobody asked."""


def request(node, number):
    node.run.request_folder.mkdir(exist_ok=True)
    return node.run.request(number)


@pytest.mark.parametrize("which", ["all", *(pytest.param(junk, marks=pytest.mark.long) for junk in JUNK)])
def test_one_odd_file_costs_that_file_only(make, which):
    node = make().start()
    pid = node.helper.pid
    node.lives(0), node.lives(1)
    for name, lay in JUNK.items():
        if name == which or (which == "all" and name != SILENT):
            lay(node)
    node.records(0), node.records(1)
    until(lambda: node.run.record(0, 0, 1).exists())
    words = node.end()
    assert node.helper.pid == pid, node.spool.helper_log.read_text()
    assert whole(node)
    told = [*node.manifest.notes, *(word.text for word in words)]
    assert which == SILENT or any(text for text in told), told


# ---------------------------------------------------------------- the launcher or the whole node is gone


def test_a_launcher_that_is_killed_leaves_a_run_json(make):
    node = make().start()
    with ending(subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(1000)"])) as rank:
        node.lives(0, pid=rank.pid, status="partial", reason="running")
        node.records(0)
        until(lambda: node.run.record(0, 0, 0).exists())
        # WHEN the launcher dies, and its rank trains on, as it does under torchrun
        node.helper._process.stdin.close()
        node.records(1)
        until(lambda: node.run.record(0, 0, 1).exists())
        assert not node.run.manifest.exists()
        # AND WHEN the rank has ended too
        rank.kill()
    assert node.helper._process.wait(60) == 0
    assert whole(node)
    assert node.manifest.exit_code is None
    assert any("launcher was killed" in note for note in node.manifest.notes)
    assert not node.spool.path.exists()


def two(make, **task):
    words = {"alone": False, "launch": "rendezvous 7", "run_id": "7", "gather_timeout_s": 2.0, **task}
    return make("zero", node="0", **words).start(), make("one", node="1", **words).start()


def test_run_json_waits_for_all_nodes_and_the_exit_code_is_that_of_the_one_that_failed(make):
    zero, one = two(make, gather_timeout_s=60.0)
    zero.lives(0), one.lives(1)
    zero.records(0), one.records(1)
    one.end(exit_code=1)
    zero.end(exit_code=0)
    assert whole(zero)
    assert zero.manifest.exit_code == 1
    assert one.helper._process.wait(60) == 0


def test_a_lost_node_is_named_by_the_head(make):
    zero, one = two(make)
    zero.lives(0), one.lives(1)
    zero.records(0)
    one.kill()
    zero.end(exit_code=1)
    assert [(r.rank, r.status) for r in zero.manifest.windows[0].records] == [(0, "ok"), (1, "missing")]
    assert "node node_1 left no result within 2 s" in zero.manifest.notes


def test_another_node_writes_run_json_where_the_head_is_lost(make):
    zero, one = two(make)
    zero.lives(0), one.lives(1)
    one.records(1)
    zero.kill()
    one.end(exit_code=1)
    assert one.helper._process.wait(60) == 0  # its launcher has left long before
    assert [(r.rank, r.status) for r in one.manifest.windows[0].records] == [(0, "missing"), (1, "ok")]
    assert one.manifest.exit_code == 1
    assert "node node_0 left no result within 2 s" in one.manifest.notes


def test_many_attempts_in_a_row_are_all_told(make):
    node = make().start()
    for attempt in range(200):
        for rank in (0, 1):
            node.lives(rank, attempt=attempt, status="partial", reason="failed at once")
    node.end(exit_code=1)
    assert (node.manifest.attempts, len(node.manifest.lives)) == (200, 400)


# ---------------------------------------------------------------- the store


def test_if_the_run_directory_cannot_be_written_files_stay_in_the_spool_and_a_message_names_it(make):
    node = make().start()
    # small files it takes, as a disk that is nearly full
    resource.prlimit(node.helper.pid, resource.RLIMIT_FSIZE, (16384, 16384))
    node.lives(0), node.lives(1)
    text = '{"traceEvents": [' + ", ".join(str(int.from_bytes(os.urandom(8), "big")) for _ in range(4000)) + "]}"
    node.records(0, text), node.records(1)
    words = node.end()
    (said,) = [word.text for word in words if word.kind == "gathered"]
    assert "File too large: 2 file(s)" in said
    assert str(node.spool.path) in said
    assert node.spool.trace(0, 0, 0).read_text() == text
    assert [(r.rank, r.status) for r in node.manifest.windows[0].records] == [(0, "missing"), (1, "ok")]
    assert "it is in" in node.manifest.windows[0].records[0].reason
    # AND who follows, when there is room again, finishes it
    node.close()
    node.run.manifest.unlink()
    again = node.start()
    again.end()
    assert node.run.trace(0, 0, 0).exists()


def test_a_store_that_is_taken_away_in_the_middle(make):
    node = make().start()
    node.lives(0), node.lives(1)
    (node.run.path / "attempt_0").write_text("no folder can be made here any more")
    node.records(0), node.records(1)
    words = node.end()
    (said,) = [word.text for word in words if word.kind == "gathered"]
    assert "4 file(s)" in said
    assert node.spool.trace(0, 0, 0).read_text() == TRACE
    assert {r.status for r in node.manifest.windows[0].records} == {"missing"}


def test_a_run_directory_that_is_refused_keeps_what_was_recorded(make):
    make("first").start()
    second = make("second", launch="launch 2")
    from rankscope.launcher.node_helper import NodeHelper

    second.helper = NodeHelper(second.spool)
    word = second.helper.claimed(60, 60)
    assert (word.kind, "belongs to run" in word.text) == ("refused", True)
    # WHEN the launcher had started the job all the same, since the answer came late
    second.records(0)
    words = second.end()
    (said,) = [word.text for word in words if word.kind == "gathered"]
    assert "belongs to run" in said
    assert "2 file(s)" in said
    assert second.spool.trace(0, 0, 0).read_text() == TRACE


def test_a_disk_that_was_full_for_the_step_log_is_reported(make):
    node = make().start()
    node.lives(0, world=1, steps_counted=50)
    log = StepLog(node.spool.step_ring(0, 0))
    for _ in range(7):
        log.step(False, 0)
    log.close()
    node.end()
    assert any("the log of all steps ends with step 7 of 50" in note for note in node.manifest.notes)
    assert node.run.step_log(0, 0).exists()


@pytest.mark.parametrize(
    ("umask", "folder", "file"),
    [
        (0o022, 0o700, 0o600),
        pytest.param(0o077, 0o700, 0o600, marks=pytest.mark.long),
        (0o002, 0o770, 0o660),
    ],
)
def test_what_is_kept_is_private_unless_a_group_shares_the_work(make, umask, folder, file):
    before = os.umask(umask)
    try:
        node = make().start()
    finally:
        os.umask(before)
    node.lives(0), node.lives(1)
    node.records(0), node.records(1)
    node.end()
    assert whole(node)
    modes = {p: stat.S_IMODE(p.lstat().st_mode) for p in [node.run.path, *node.run.path.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {folder}
    assert {mode for path, mode in modes.items() if path.is_file()} == {file}


# ---------------------------------------------------------------- in this process, where time and store can be planted


class InProcess:
    """The helper in a thread of the test."""

    def __init__(self, node, monkeypatch):
        monkeypatch.setattr("os.nice", lambda _: 0)
        self._reader, self._writer = os.pipe()
        self.helper = Helper(node.spool, Messages(None), self._reader)
        self._thread = threading.Thread(target=self.helper.run, daemon=True)
        self._thread.start()

    def end(self):
        os.write(self._writer, b'{"exit_code": 0}\n')
        self._thread.join(300)
        assert not self._thread.is_alive()
        os.close(self._writer)
        os.close(self._reader)


def test_clocks_that_jump_harm_nothing(make, monkeypatch):
    node, begun, turn = make(), time.time_ns(), itertools.count()

    def jumping() -> int:  # a day forth, a day back, at every look
        return begun + (86_400 if next(turn) % 2 else -86_400) * 10**9

    monkeypatch.setattr(time, "time_ns", jumping)
    monkeypatch.setattr(time, "time", lambda: jumping() / 1e9)
    running = InProcess(node, monkeypatch)
    node.lives(0), node.lives(1)
    node.records(0), node.records(1)
    until(lambda: node.run.record(0, 0, 1).exists())
    running.end()
    assert whole(node)
    assert not node.spool.path.exists()


def test_step_logs_go_on_while_the_store_hangs(make, monkeypatch):
    node, answers = make(), threading.Event()
    monkeypatch.setattr("rankscope.node.gathering.step_log.KEPT_EXACT", 2 * STEP_LOG_CAPACITY)
    from rankscope.rundir import claim as claims

    def hangs(*words, **more):
        answers.wait()
        return claims.claim(*words, **more)

    monkeypatch.setattr("rankscope.node.mirroring.claim", hangs)
    running = InProcess(node, monkeypatch)
    node.lives(0, world=1, steps_counted=2 * STEP_LOG_CAPACITY)
    log = StepLog(node.spool.step_ring(0, 0))
    for turn in (1, 2):  # a ring would have lost the first half
        for _ in range(STEP_LOG_CAPACITY):
            log.step(False, 1000)
        log.flush()
        drained = node.spool.step_log(node.spool.step_ring(0, 0))
        full = STEP_LOG_HEADER.size + turn * STEP_LOG_CAPACITY * STEP_LOG_ENTRY.size
        until(lambda full=full, drained=drained: drained.exists() and drained.stat().st_size == full)
    answers.set()
    running.end()
    raw = gzip.decompress(node.run.step_log(0, 0).read_bytes())
    kept = list(STEP_LOG_ENTRY.iter_unpack(raw[STEP_LOG_HEADER.size :]))
    assert len(kept) == 2 * STEP_LOG_CAPACITY
    assert all(entry[2] == 1 for entry in kept)


# ---------------------------------------------------------------- the report


def test_a_report_that_takes_too_long_is_given_up_with_the_command_that_makes_it(make):
    node = make(report=True, report_timeout_s=0.05).start()
    node.lives(0, world=1)
    words = node.end()
    (said,) = [word.text for word in words if word.kind == "lacking"]
    assert "analysis.timeout_s=0.05" in said
    assert f"rankscope analyze {node.run.path}" in said
    assert node.manifest.world_size == 1


def test_a_report_whose_process_is_killed_is_reported(make):
    node = make(report=True).start()
    node.lives(0, world=1)
    from rankscope.records.running.node_task import JobEnd

    node.helper.finish(JobEnd(exit_code=0))
    until(lambda: (word := node.helper.next_message(0.2)) is not None and word.kind == "begun")
    children = Path(f"/proc/{node.helper.pid}/task")
    until(lambda: any((task / "children").read_text() for task in children.iterdir()))
    for task in children.iterdir():
        for pid in (task / "children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    (said,) = [word.text for word in node.hear() if word.kind == "lacking"]
    assert "killed by signal 9" in said
