"""State of a running job: read from the logs, written as a line, printed at intervals."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rankscope.agent.steps import step_log
from rankscope.agent.steps.step_log import StepLog
from rankscope.between.live import in_a_line, rank_rows
from rankscope.launcher.live_line import LiveLine
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.node.watching.live import LiveStatus
from rankscope.node.watching.metrics import as_openmetrics
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.records.running.live import NodeLive, RankLive
from rankscope.records.running.step_log import WRAPPED
from rankscope.records.spec import ScheduleSpec, Window
from rankscope.rundir.spool import Spool


class Job:
    """Two ranks that log steps of planted length, and the helper's reading of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.spool = 0.0, Spool(folder)
        self.clock = [0, 0]
        self.rank = 0
        monkeypatch.setattr(step_log, "perf_counter_ns", lambda: self.clock[self.rank])
        self.logs = [StepLog(self.spool.step_ring(0, rank)) for rank in (0, 1)]
        self.drain = StepLogDrain(self.spool)
        self.schedule = ScheduleSpec(skip_first=510, wait=1, warmup=2, active=6)
        self.status = LiveStatus(self.spool, self.schedule, clock=lambda: self.now)

    def steps(self, count: int, ms: float, late_ms: float = 0.0) -> None:
        """Rank 1 spends ``late_ms`` more in its data loader, and rank 0 waits for it in the backward."""
        for _ in range(count):
            for rank, log in enumerate(self.logs):
                self.rank = rank
                late = late_ms * 1e6 if rank else 0.0
                self._pass(ms * 1e6 / 2 + late)
                log.input_ns = int(late)
                log.mark("forward")
                log.mark("backward")
                self._pass(ms * 1e6 / 2 + late_ms * 1e6 - late)
                log.mark("backward_ended")
                log.step(False, 0)

    def _pass(self, ns: float) -> None:
        self.clock[self.rank] += int(ns)

    def look(self, after_s: float = 3.0) -> NodeLive | None:
        self.now += after_s
        for log in self.logs:
            log.flush()
        self.drain.drain()
        self.status.look(self.drain.counts())
        found, self.status.found = self.status.found, None
        return found


def test_step_time_trend_and_input_of_each_rank(tmp_path, monkeypatch):
    job = Job(tmp_path, monkeypatch)
    assert job.look() is None
    job.steps(301, 40)
    job.steps(200, 50, late_ms=10)
    live = job.look()
    first, second = live.ranks
    assert (first.rank, first.steps, first.step_ms, first.before_ms) == (0, 501, 60, 40)
    assert (first.own_ms, second.own_ms) == (25, 35)
    assert (first.input_pct, second.input_pct) == (0, pytest.approx(100 * 10 / 60))
    assert second.seconds == pytest.approx(300 * 0.04 + 200 * 0.06)
    assert second.input_seconds == pytest.approx(2)
    assert in_a_line([live]) == "step 501  60 ms (+50 %)  input 17 % (rank 1)  next window 513 to 518"
    # once announced, it is told as it was announced
    job.spool.notice(0, "window_0").write_text(to_json(Window(number=0, warm=600, first=601, last=602)))
    assert in_a_line([job.look()]).endswith("next window 513 to 518"), "the nearer one"
    job.steps(13, 50)
    assert in_a_line([job.look()]).endswith("recording 513 to 518")
    job.steps(10, 50)
    assert in_a_line([job.look()]).endswith("next window 601 to 602")
    assert live.news == ""
    assert job.look(after_s=1.0) is None, "every two seconds"
    assert job.look(after_s=30.0).ranks[0].idle_s == 31.0


def test_once_a_minute_the_logs_are_judged_with_the_numbers_of_their_steps(tmp_path, monkeypatch):
    job = Job(tmp_path, monkeypatch)
    for _ in range(48):  # more than is judged while the job runs
        job.steps(99, 40)
        job.steps(1, 40, late_ms=20)
    live = job.look(after_s=61)
    assert live.named == [1]
    assert "Rank 1 is 20 ms late in every 100th step" in live.news
    attempt, pattern = job.status.pattern
    assert (attempt, pattern.kind, pattern.period, pattern.first % 100) == (0, "every", 100, 99)
    job.status.pattern = None
    assert job.look(after_s=1000).news == live.news, "nothing new to judge, and it still holds"
    for _ in range(3):
        job.steps(99, 40)
        job.steps(1, 40, late_ms=20)
    assert job.look(after_s=1000).named == [1]
    assert job.status.pattern is None, "asked for once"


@pytest.mark.parametrize(("device", "waits"), [("cpu (x86_64)", (50, 25)), ("NVIDIA H200", (None, None))])
def test_how_long_ranks_wait_in_collectives(tmp_path, monkeypatch, device, waits):
    # steps of 60 ms: 20 before the ranks meet on rank 0 and 35 on rank 1; the backward is 40 and 25 ms, of which 10 are
    # CPU time. So rank 0 waits for 30 of 60 ms and rank 1 for 15.
    job = Job(tmp_path, monkeypatch)
    for rank, log in enumerate(job.logs):
        counted = itertools.count(0, 10_000_000)
        monkeypatch.setattr(log.clock, "read", lambda counted=counted: (next(counted), 0))
        life = RankRecord(attempt=0, rank=rank, world_size=2, local_rank=rank, host="a", pid=7, device=device)
        job.spool.process_record(0, rank).write_text(to_json(life))
    for _ in range(100):
        for rank, log in enumerate(job.logs):
            job.rank = rank
            job._pass(35e6 if rank else 20e6)
            log.flags |= WRAPPED
            log.mark("forward")
            log.mark("backward")
            job._pass(25e6 if rank else 40e6)
            log.mark("backward_ended")
            log.step(False, 0)
    found = job.look()
    assert [row.wait_pct for row in found.ranks] == [wait if wait is None else pytest.approx(wait) for wait in waits]
    line, metrics = in_a_line([found]), as_openmetrics([found])
    assert ("waits 50 % (rank 0)" in line) == (waits[0] is not None)
    assert ('rankscope_wait_ratio{rank="1",host="a"} 0.25' in metrics.replace(found.host, "a")) == (
        waits[0] is not None
    )
    assert ("wait_ratio" in metrics) == (waits[0] is not None)


def test_a_step_log_that_is_not_there_is_no_error(tmp_path, monkeypatch):
    job = Job(tmp_path, monkeypatch)
    with pytest.raises(OSError, match="No such file"):  # the helper notes it, once, and goes on
        job.status.look({(0, 0): 7})
    assert job.status.found is None


# ---------------------------------------------------------------- in words


def live(**more) -> NodeLive:
    ranks = [RankLive(rank=0, steps=4200, step_ms=104, own_ms=40), RankLive(rank=1, steps=4200, step_ms=104, own_ms=80)]
    return NodeLive(**{"node": "n", "host": "a", "attempt": 0, "world_size": 2, "time_ns": 1, "ranks": ranks} | more)


def test_a_line_that_is_too_long_loses_its_end():
    named = live(news="Rank 1 is late.", named=[1])
    assert in_a_line([named]) == "step 4,200  104 ms  Rank 1 is late."
    assert in_a_line([named], 80) == "step 4,200  104 ms  rank 1 late"
    assert in_a_line([named], 20) == "step 4,200  104 ms"
    assert in_a_line([]) == ""


def test_named_ranks_come_first_in_the_table():
    rows = rank_rows([live()])
    assert [row[1] for row in rows] == ["rank", "1", "0"]
    rows = rank_rows([live(named=[0])])
    assert [row[:2] for row in rows[1:]] == [[">", "0"], ["", "1"]]


def test_a_line_after_a_minute_five_thirty_and_then_hourly():
    said, now = [], [0.0]
    line = LiveLine(said.append, clock=lambda: now[0])
    at = []
    for minute in range(200):
        now[0] = 60.0 * minute
        before = len(said)
        line.look(live())
        at += [minute] * (len(said) - before)
    assert at == [1, 5, 30, 90, 150]
    assert said[0] == "step 4,200  104 ms"


def test_news_is_reported_at_once_and_no_more_than_once_a_minute():
    said, now = [], [0.0]
    line = LiveLine(said.append, clock=lambda: now[0])
    for second, news in ((10, "A."), (12, "A."), (20, "B."), (75, "B."), (80, "B.")):
        now[0] = float(second)
        line.look(live(news=news))
    assert [text.split("  ")[-1] for text in said] == ["A.", "B."]


def test_openmetrics():
    text = as_openmetrics([live(named=[1])])
    assert text.endswith("# EOF\n")
    lines = text.splitlines()
    assert 'rankscope_step_seconds{rank="1",host="a"} 0.104' in lines
    assert 'rankscope_late{rank="1",host="a"} 1' in lines
    assert 'rankscope_steps_total{rank="0",host="a"} 4200' in lines
    assert lines.count("# TYPE rankscope_steps counter") == 1
    many = [RankLive(rank=rank, steps=1, own_ms=rank) for rank in range(100)]
    told = [line for line in as_openmetrics([live(ranks=many)]).splitlines() if line.startswith("rankscope_step_s")]
    assert len(told) == 16
    assert told[0].startswith('rankscope_step_seconds{rank="84"')
