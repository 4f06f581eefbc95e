"""Requests for a window of a running job."""

from __future__ import annotations

import json

import pytest

from rankscope.errors import RunDirError
from rankscope.limits import MAX_REQUESTS
from rankscope.node.watching.requests import RequestRelay, answers, ask
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import RankRecord
from rankscope.records.spec import CaptureRequest
from rankscope.rundir.claim import claim
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def running(tmp_path) -> RunDir:
    run = RunDir(tmp_path / "run")
    claim(run, "job", None, launch="1", alone=True)
    return run


def test_requests_reach_the_ranks_in_the_order_of_asking(tmp_path):
    run, spool = running(tmp_path), Spool(tmp_path / "spool")
    spool.path.mkdir()
    relay = RequestRelay(spool, run)
    ask(run, steps=5, warmup=2, detail="")
    relay.relay()
    ask(run, steps=3, warmup=1, detail="stacks")
    relay.relay()
    passed = [from_json(CaptureRequest, spool.request(number).read_bytes()) for number in (0, 1)]
    assert [(r.name, r.steps, r.detail) for r in passed] == [("request_0000", 5, ""), ("request_0001", 3, "stacks")]


def test_only_records_of_the_request_answer_it(tmp_path):
    run = running(tmp_path)
    request = ask(run, steps=5, warmup=2, detail="")
    run.window(0, 0).mkdir(parents=True)
    for rank, origin in enumerate(("plan", request.name)):
        record = RankRecord(rank=rank, local_rank=0, world_size=2, host="h", pid=1, attempt=0, window=0, origin=origin)
        run.record(0, 0, rank).write_text(to_json(record))
    assert [record.rank for record in answers(run, request)] == [1]


def test_a_run_that_has_ended_and_a_folder_that_is_none_are_refused(tmp_path):
    run = running(tmp_path)
    run.manifest.write_text("{}")
    with pytest.raises(RunDirError, match="has ended"):
        ask(run, steps=5, warmup=2, detail="")
    with pytest.raises(RunDirError, match="no run directory"):
        ask(RunDir(run.nodes), steps=5, warmup=2, detail="")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"steps": "many"}, 'steps: a whole number is wanted, not "many"'),
        ({"steps": True}, "steps: a whole number is wanted, not true"),
        ({"steps": 1.5}, "steps: a whole number is wanted, not 1.5"),
        ({"steps": 1_000_000}, "steps: 1000000"),
        ({"warmup": -1}, "warmup: -1"),
        ({"detail": "everything"}, "detail: 'everything'"),
    ],
)
def test_what_no_rank_should_be_asked_for_is_not_passed_on(tmp_path, fields, why):
    run, spool, told = running(tmp_path), Spool(tmp_path / "spool"), []
    spool.path.mkdir()
    run.request_folder.mkdir()
    run.request(0).write_text(json.dumps({"name": "request_0000", "steps": 2, "warmup": 1, "detail": "", **fields}))
    relay = RequestRelay(spool, run, told.append)
    ask(run, steps=5, warmup=2, detail="")
    relay.relay()
    relay.relay()
    assert len(told) == 1
    assert why in told[0]
    assert from_json(CaptureRequest, spool.request(0).read_bytes()).name == "request_0001"
    assert not spool.request(1).exists()


def test_who_follows_a_relay_that_died_passes_nothing_on_twice(tmp_path):
    run, spool = running(tmp_path), Spool(tmp_path / "spool")
    spool.path.mkdir()
    ask(run, steps=5, warmup=2, detail="")
    RequestRelay(spool, run).relay()
    ask(run, steps=3, warmup=1, detail="")
    RequestRelay(spool, run).relay()
    passed = [from_json(CaptureRequest, spool.request(number).read_bytes()).name for number in (0, 1)]
    assert passed == ["request_0000", "request_0001"]
    assert not spool.request(2).exists()


def test_a_run_answers_no_more_than_so_many_requests(tmp_path):
    run = running(tmp_path)
    run.request_folder.mkdir()
    for number in range(MAX_REQUESTS):
        run.request(number).touch()
    with pytest.raises(RunDirError, match="asked for 1000 windows"):
        ask(run, steps=5, warmup=2, detail="")
