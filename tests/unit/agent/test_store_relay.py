"""Announcements relayed between nodes through a TCPStore like that of torchrun's agents."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from rankscope.agent.carriers.base import Post
from rankscope.agent.carriers.store_relay import StoreRelay
from rankscope.agent.carriers.torchrun_store import job_has_store
from rankscope.agent.windows.notices import Notices
from rankscope.records.spec import CaptureRequest, Window
from rankscope.rundir.spool import Spool

ENDS_LATE = """
import sys, time
from pathlib import Path
from torch.distributed import TCPStore
from rankscope.agent.windows.notices import Notices
from rankscope.agent.carriers.base import Post
from rankscope.agent.carriers.store_relay import StoreRelay
from rankscope.rundir.spool import Spool

server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
board = Notices(Spool(Path(sys.argv[1])), 0)
StoreRelay(Post("r", 0, 1, board, {}), "127.0.0.1", server.port).start()
board.post("slow_step")
server.wait(["rankscope/r/0/slow_steps", "rankscope/r/0/nodes"])  # who speaks and who listens have connected

class WhenPythonShutsDown:
    def __del__(self, tell=server.set, pause=time.sleep):
        tell("rankscope/r/0/window_0/1", "{}")
        pause(1)

last = WhenPythonShutsDown()
sys.modules["last"] = last
del last
"""


@pytest.fixture
def nodes(tmp_path: Path):
    """Boards of two nodes with one rank each, and who carries between them."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    boards, couriers = [], []
    for node in range(2):
        folder = tmp_path / str(node)
        folder.mkdir()
        boards.append(Notices(Spool(folder), 0))
        couriers.append(StoreRelay(Post("r", 0, node, boards[node], {}), "127.0.0.1", server.port))
        couriers[node].start()
    yield boards, couriers
    for courier in couriers:
        courier.stop()


def until(true):
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_windows_travel_outwards_one_after_the_other(nodes):
    (head, other), _ = nodes
    windows = [Window(number=number, warm=1, first=2, last=3) for number in range(3)]
    for window in windows:
        head.announce(window)
    for window in windows:
        until(lambda number=window.number: other.announced(number) is not None)
        assert other.announced(window.number) == window


def test_slow_steps_travel_inwards(nodes):
    (head, other), _ = nodes
    other.post("slow_step")
    until(lambda: head.stands("slow_step"))


def test_windows_that_a_script_asks_for_travel_inwards(nodes):
    (head, other), _ = nodes
    for step in (7, 9):
        other.ask(CaptureRequest(name="script", steps=3, warmup=2, at=step))
        until(lambda step=step: (asked := head.asked()) is not None and asked.at == step)


def test_only_a_store_of_torchruns_is_used():
    theirs = {"MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert job_has_store({**theirs, "TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert not job_has_store({**theirs, "TORCHELASTIC_USE_AGENT_STORE": "False"})
    assert not job_has_store({"MASTER_ADDR": "a", "TORCHELASTIC_USE_AGENT_STORE": "True"})


def test_the_relay_stops_on_request(nodes):
    _, couriers = nodes
    carrying = [t for t in threading.enumerate() if t.name.startswith(("rankscope_speak", "rankscope_listen"))]
    assert len(carrying) == 4
    for courier in couriers:
        courier.stop()
    assert not any(thread.is_alive() for thread in carrying)


@pytest.mark.process
def test_a_process_that_shuts_down_while_the_store_answers_ends_well(tmp_path: Path):
    # a thread that came back from the store now would abort it
    done = subprocess.run([sys.executable, "-c", ENDS_LATE, tmp_path], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
