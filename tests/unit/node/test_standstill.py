"""When ranks are asked where they are, and conclusions from their answers; time and ranks are simulated."""

from __future__ import annotations

import os
import time

import pytest

from rankscope.node.watching.outside_stacks import OutsideStacks
from rankscope.node.watching.standstill import StandstillWatch, place_answers
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.records.running.hang import NodeAnswers, RankAnswer, ThreadStack
from rankscope.rundir.record_files import read_record
from rankscope.rundir.spool import Spool


class Node:
    """A node of two ranks, both of them this process, which answer what the test says."""

    def __init__(self, folder, after_s: float = 60.0) -> None:
        self.spool, self.now, self.steps = Spool(folder), 0.0, {(0, 0): 0, (0, 1): 0}
        self.outside = OutsideStacks(folder, command=[])
        self.watch = StandstillWatch(self.spool, after_s, clock=lambda: self.now, outside=self.outside)
        self.ends = {}
        self.pipes = {}
        for rank in (0, 1):
            record = RankRecord(
                rank=rank, local_rank=rank, world_size=2, host="a", pid=os.getpid(), attempt=0, window=None
            )
            self.spool.process_record(0, rank).write_text(to_json(record))
            os.mkfifo(self.spool.question(0, rank))
            self.pipes[rank] = os.open(self.spool.question(0, rank), os.O_RDWR | os.O_NONBLOCK)

    def go(self, seconds: float, *, steps: int = 0) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            self.steps = {key: count + steps for key, count in self.steps.items()}
            self.watch.look(self.steps, self.ends)

    def asked(self, rank: int) -> int | None:
        try:
            return int(os.read(self.pipes[rank], 512).split()[-1])
        except BlockingIOError:
            return None

    def answer(self, rank: int, token: int, frame: str) -> None:
        stack = ThreadStack(name="MainThread", training=True, frames=[frame])
        found = RankAnswer(rank=rank, attempt=0, token=token, time_ns=1, steps=1, part="backward", stacks=[stack])
        self.spool.answer(0, rank).write_text(to_json(found))

    def close(self) -> None:
        for pipe in self.pipes.values():
            os.close(pipe)


@pytest.fixture
def node(tmp_path):
    made = []

    def make(**more) -> Node:
        made.append(Node(tmp_path, **more))
        return made[0]

    yield make
    made[0].close()


def round_of(node: Node, *frames: str):
    """A round of two questions: rank 1 is at these frames, one after the other; rank 0 does not move."""
    for frame in frames:
        for rank in (0, 1):
            while (token := node.asked(rank)) is None:
                node.go(1)
            node.answer(rank, token, frame if rank else "train.py:1 in waits")
        node.go(5)
    found, node.watch.found = node.watch.found, None
    return found


def test_no_rank_is_asked_while_steps_are_made(node):
    one = node()
    one.go(600, steps=3)
    one.go(59)
    assert one.asked(0) is None
    one.go(2)
    assert one.asked(0) == 1


def test_slow_steps_are_no_standstill(node):
    one = node()
    for _ in range(5):
        one.go(29)
        one.go(1, steps=1)  # 30 s a step
    one.go(590)
    assert one.asked(0) is None
    one.go(20)  # 20 steps of 30 s
    assert one.asked(0) is not None


def test_ranks_with_and_without_progress(node):
    one = node()
    one.go(10, steps=1)
    one.go(61)
    found = round_of(one, "train.py:5 in fetch", "train.py:5 in fetch")
    assert [(s.rank, s.advances, s.steps) for s in found.ranks] == [(0, False, 10), (1, False, 10)]
    assert found.ranks[1].answer.stacks[0].frames == ["train.py:5 in fetch"]
    assert not found.asked
    # asked again when as long again has passed, not before
    one.go(100)
    assert one.asked(0) is None
    found = round_of(one, "train.py:7 in evaluate", "train.py:8 in evaluate")
    assert [s.advances for s in found.ranks] == [False, True]


def test_resumed_steps_are_added_to_the_answers(node, tmp_path):
    one = node()
    one.go(10, steps=1)
    one.go(61)
    place_answers(tmp_path / "a.json", round_of(one, "x", "x"))
    one.go(3, steps=1)
    place_answers(tmp_path / "a.json", one.watch.found)
    kept = read_record(type(one.watch.found), tmp_path / "a.json")
    assert (kept.resumed, len(kept.ranks)) == (True, 2)


def test_a_standstill_is_over_when_all_ranks_start_again(node, tmp_path):
    one = node()
    one.go(10, steps=1)
    one.go(61)
    place_answers(tmp_path / "node_0.json", round_of(one, *["train.py:9 in stands"] * 2))
    # WHEN an elastic job has started its ranks again, of which one has made a step
    record = RankRecord(rank=1, local_rank=1, world_size=2, host="a", pid=os.getpid(), attempt=1, window=None)
    one.spool.process_record(1, 1).write_text(to_json(record))
    one.steps[1, 1] = 1
    one.go(1)
    place_answers(tmp_path / "node_0.json", one.watch.found)
    kept = read_record(NodeAnswers, tmp_path / "node_0.json")
    assert (kept.resumed, kept.attempt, [state.rank for state in kept.ranks]) == (True, 0, [0, 1])


def test_steps_that_go_on_before_it_was_placed_and_after_the_last_look_are_noted(node, tmp_path):
    one = node()
    one.go(10, steps=1)
    one.go(61)
    found = round_of(one, "x", "x")
    one.watch.found = found  # as where the helper has no time to place it
    one.watch.look_back({key: steps + 1 for key, steps in one.steps.items()})
    place_answers(tmp_path / "a.json", one.watch.found)
    kept = read_record(type(found), tmp_path / "a.json")
    assert (kept.resumed, len(kept.ranks)) == (True, 2)


def test_steps_of_before_that_come_with_the_answer_are_no_progress(node, monkeypatch):
    one = node()
    monkeypatch.setattr("rankscope.node.watching.standstill.time.time_ns", lambda: int(one.now * 1e9))
    one.go(100, steps=1)
    made = int(one.now * 1e9)
    # GIVEN ranks that stand still, and write when they are asked what they had made until then
    one.go(61)
    token = one.asked(1)
    one.steps, one.ends = dict.fromkeys(one.steps, 120), dict.fromkeys(one.steps, made)
    for rank in (0, 1):
        one.answer(rank, token, "train.py:9 in stands")
    one.go(1)
    # rank 0 has not written at once: its steps come between the two questions
    one.steps = {(0, 0): 120, (0, 1): 121}
    found = round_of(one, "train.py:9 in stands")
    assert [(state.rank, state.steps, state.advances) for state in found.ranks] == [(0, 120, False), (1, 121, False)]
    assert min(state.idle_s for state in found.ranks) > 60, "since their last step, and not since they have told of it"
    # AND those that come with the end of the job
    one.watch.look_back({(0, 0): 125, (0, 1): 125}, one.ends)
    assert one.watch.found is None
    # AND steps that are made after it are told
    one.watch.look_back({(0, 0): 130, (0, 1): 130}, dict.fromkeys(one.steps, int(one.now * 1e9)))
    assert one.watch.found.resumed


def test_a_person_may_ask_at_any_time_and_0_asks_never(node):
    one = node(after_s=0)
    one.go(5, steps=1)
    one.go(10_000)
    assert one.asked(0) is None
    one.watch.wanted = True
    one.go(1)
    found = round_of(one, "x", "x")
    assert found.asked


def test_a_rank_that_does_not_answer_is_described_from_outside(node):
    one = node()
    one.go(10, steps=1)
    one.go(61)
    for _ in range(2):
        one.answer(0, one.asked(0), "train.py:1 in waits")
        one.go(5)
    found = one.watch.found
    assert [s.answer is None for s in found.ranks] == [False, True]
    assert found.ranks[1].state in ("R", "S")


def until_found(node: Node):
    """Nobody answers."""
    for _ in range(100):
        node.go(1)
        if node.watch.found is not None:
            found, node.watch.found = node.watch.found, None
            return found
    return None


def test_before_the_first_step_ranks_are_asked_later_and_tell_how_far_they_are(node):
    one = node()
    one.steps = {}
    one.spool.stage(0, 0).write_text("rendezvous 5\n")
    one.spool.stage(0, 1).write_text("began 5\n")
    one.go(299)  # five times as long
    assert one.asked(0) is None
    found = until_found(one)
    assert [(state.rank, state.stage, state.steps) for state in found.ranks] == [(0, "rendezvous", 0), (1, "began", 0)]
    # it begins after all: what was said is marked as over
    one.spool.stage(0, 1).write_text("rendezvous 9\n")
    one.go(1)
    assert one.watch.found.resumed


def test_a_process_without_steps_and_peers_is_not_asked(node):
    one = node()
    one.steps = {}
    for rank in (0, 1):
        one.spool.stage(0, rank).write_text("group 5\n")
    assert until_found(one) is None
    one.go(3000)
    assert one.asked(0) is not None
    assert one.watch.found is None
    one.watch.wanted = True  # a person who asks is told
    assert until_found(one).asked


def test_unknown_stages_are_ignored(node):
    one = node()
    one.steps = {}
    one.spool.stage(0, 0).write_bytes(b"\xff\xfe")
    one.spool.stage(0, 1).write_text("dancing 5\n")
    one.watch.wanted = True
    assert [state.stage for state in until_found(one).ranks] == ["", ""]


PY_SPY = """#!/bin/sh
[ "$1 $2 $3 $4" = "dump --nonblocking --json --pid" ] || exit 2
echo '[{"pid": 7, "thread_id": 1, "thread_name": null, "os_thread_id": 9, "frames": []},
 {"pid": 7, "thread_id": 2, "thread_name": "MainThread", "os_thread_id": '$5', "active": false, "owns_gil": false,
  "frames": [{"name": "wait", "filename": "/usr/lib/python3/threading.py", "line": 320},
             {"name": "main", "filename": "/home/u/train.py", "line": 12}]}]'
"""


def seen(outside: OutsideStacks, pid: int):
    outside.look_at([pid])
    while not outside.done():
        time.sleep(0.01)
    return outside.found


def test_stacks_of_a_rank_that_does_not_answer_are_seen_from_outside(tmp_path):
    program = tmp_path / "py-spy"
    program.write_text(PY_SPY)
    program.chmod(0o700)
    found = seen(OutsideStacks(tmp_path, [str(program)]), 4321)
    main, other = found[4321]
    assert (main.name, main.training) == ("MainThread", True)
    assert main.frames == ["/home/u/train.py:12 in main", "/usr/lib/python3/threading.py:320 in wait"]
    assert (other.name, other.training, other.frames) == ("9", False, [])


@pytest.mark.parametrize("program", ["exit 1", "echo '{'", "echo '[1]'", "echo '[{}]'", "echo '{\"a\": 1}'", "no-such"])
def test_stacks_that_cannot_be_read_are_left_out(tmp_path, program):
    assert not seen(OutsideStacks(tmp_path, ["sh", "-c", program, "-"]), 4321).get(4321)


def test_what_takes_too_long_to_be_seen_is_given_up(tmp_path):
    now = [0.0]
    outside = OutsideStacks(tmp_path, ["sh", "-c", "exec sleep 600", "-"], clock=lambda: now[0])
    outside.look_at([4321])
    assert not outside.done()
    now[0] = 6.0
    assert outside.done()
    assert outside.found == {}
