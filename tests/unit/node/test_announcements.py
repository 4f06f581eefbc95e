"""Announcements between nodes through the run directory."""

from __future__ import annotations

from pathlib import Path

from rankscope.agent.carriers.base import Post
from rankscope.agent.carriers.run_directory import CARRIER
from rankscope.agent.windows.notices import Notices
from rankscope.node.watching.announcements import AnnouncementRelay
from rankscope.records.spec import Window
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def test_windows_travel_from_the_node_of_rank_0_to_the_others_once_they_ask(tmp_path: Path) -> None:
    run, boards, relays = RunDir(tmp_path / "RUN"), [], []
    for node in range(3):
        spool = Spool(tmp_path / str(node))
        spool.path.mkdir()
        boards.append(Notices(spool, 1))
        relays.append(AnnouncementRelay(spool, run))
    # GIVEN three nodes, the last of which has a job that does not need it
    for rank, notices in enumerate(boards[:2]):
        CARRIER.start(Post("r", 1, rank, notices, {}))
    windows = [Window(number=number, warm=1, first=2, last=3) for number in range(2)]
    for window in windows:
        boards[0].announce(window)
    for relay in (*relays, *relays):
        relay.relay()
    assert [boards[1].announced(number) for number in (0, 1, 2)] == [*windows, None]
    assert boards[2].announced(0) is None
    # AND a file that is no announcement costs that window only, a helper that is started again goes on
    run.announcement(1, 2).write_text("{")
    boards[0].announce(Window(number=3, warm=5, first=6, last=7))
    run.announcement(1, 3).write_text((tmp_path / "0" / "notice_1_window_3").read_text())
    relays[1].relay()
    assert boards[1].announced(2) is None
    assert boards[1].announced(3) == Window(number=3, warm=5, first=6, last=7)
    AnnouncementRelay(Spool(tmp_path / "0"), run).relay()
