"""A process that is asked where it is answers, and nothing changes for the script."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import os, sys, threading, time
from pathlib import Path
from rankscope.agent.answers import Listener
from rankscope.records.running.hang import RankAnswer

folder = Path(sys.argv[1])
trains = threading.get_ident()
about = lambda: (RankAnswer(rank=3, attempt=1, token=0, time_ns=0, steps=7, part="forward"), trains)

def second():
    time.sleep(600)

threading.Thread(target=second, name="theirs", daemon=True).start()
before = threading.active_count()
listener = Listener(folder / "question", folder / "answer", about)
assert listener.begin()
assert threading.active_count() == before

def stands_still():
    print("listens", flush=True)
    sys.stdin.readline()

stands_still()
if len(sys.argv) > 2:
    os.closerange(3, 256)  # as a daemon does
    theirs = [os.open(os.devnull, os.O_RDWR) for _ in range(60)]
    print("closed", flush=True)
    sys.stdin.readline()
print("ends", flush=True)
listener.close()
sys.exit(3)
"""


def ask(folder: Path, token: int) -> None:
    pipe = os.open(folder / "question", os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, b"%d\n" % token)
    os.close(pipe)


@pytest.fixture
def process(tmp_path):
    def start(*more: str) -> subprocess.Popen:
        words = [sys.executable, "-c", SCRIPT, str(tmp_path), *more]
        started.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "listens\n"
        return started[-1]

    started: list[subprocess.Popen] = []
    yield start
    for one in started:
        one.kill()
        one.communicate()


def wait_for(path: Path, token: int) -> dict:
    for _ in range(6000):
        if path.exists() and (found := json.loads(path.read_text()))["token"] == token:
            return found
        time.sleep(0.01)
    raise AssertionError("no answer")


@pytest.mark.process
def test_each_question_is_answered_with_the_position_of_the_training_thread(tmp_path, process):
    job = process()
    for token in (1, 2):
        ask(tmp_path, token)
        found = wait_for(tmp_path / "answer", token)
        assert (found["rank"], found["attempt"], found["steps"], found["part"]) == (3, 1, 7, "forward")
        first, *others = found["stacks"]
        assert first["training"]
        assert first["frames"][-1].endswith("in stands_still")
        assert [stack["name"] for stack in others] == ["theirs"]
        assert not found["recorder"], "no process group"
    # AND the process ends as it would have
    out, _ = job.communicate("go on\n", timeout=60)
    assert (out, job.returncode) == ("ends\n", 3)


def test_a_script_that_closes_what_it_does_not_know_keeps_its_files(tmp_path, process):
    job = process("close")
    job.stdin.write("\n")
    job.stdin.flush()
    assert job.stdout.readline() == "closed\n"
    with contextlib.suppress(OSError):  # ENXIO: nobody listens any more
        for token in range(1, 2000):  # the read that was under way is answered; then it is seen that the pipe is gone
            ask(tmp_path, token)
            time.sleep(0.05)
        pytest.fail("it reads on from a descriptor that is the script's own")
    out, _ = job.communicate("\n", timeout=60)
    assert (out, job.returncode) == ("ends\n", 3)


def test_no_thread_is_added_where_there_is_none_yet(tmp_path):
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from rankscope.agent.answers import Listener\n"
        "alone = len(os.listdir('/proc/self/task')) == 1\n"
        "print(alone, Listener(Path(sys.argv[1]) / 'q', Path(sys.argv[1]) / 'a', lambda: (None, None)).begin())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_the_end_waits_for_an_answer_that_is_under_way_and_none_begins_after_it(tmp_path):
    code = (
        "import os, sys, threading\n"
        "from pathlib import Path\n"
        "from rankscope.agent.answers import Listener\n"
        "begun, go = threading.Event(), threading.Event()\n"
        "def about():\n"
        "    begun.set()\n"
        "    go.wait()\n"
        "    print('answers', flush=True)\n"
        "    raise ValueError\n"
        "threading.Thread(target=go.wait, daemon=True).start()\n"
        "listener = Listener(Path(sys.argv[1]) / 'q', Path(sys.argv[1]) / 'a', about)\n"
        "assert listener.begin()\n"
        "pipe = os.open(Path(sys.argv[1]) / 'q', os.O_WRONLY)\n"
        "os.write(pipe, b'1\\n')\n"
        "begun.wait()\n"
        "threading.Timer(0.2, go.set).start()\n"
        "listener.close()\n"
        "print('closed', flush=True)\n"
        "os.write(pipe, b'2\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "answers\nclosed\n"
