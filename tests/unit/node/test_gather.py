"""From spool to run directory: checks, and their messages."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os

import pytest

from rankscope.node.gathering.gather import Gatherer, own_record
from rankscope.node.gathering.placing import Placing
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.rundir.files import stored
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

RECORD = {"rank": 0, "local_rank": 0, "world_size": 4, "host": "h", "pid": 1, "attempt": 0, "window": 1}


def announce(spool: Spool, text: str | None, **fields) -> RankRecord:
    record = RankRecord(rank=3, local_rank=1, world_size=4, host="h", pid=1, attempt=0, window=2, **fields)
    if text is not None:
        spool.trace(0, 2, 3).write_text(text)
        record.trace = spool.trace(0, 2, 3).name
    spool.record(0, 2, 3).write_text(to_json(record))
    return record


def gather(tmp_path, text, **fields):
    spool, run = Spool(tmp_path / "spool"), RunDir(tmp_path / "run")
    spool.path.mkdir(exist_ok=True)
    announce(spool, text, **fields)
    gatherer = Gatherer(spool, run)
    (record,) = gatherer.gather()
    assert [path.name for path in spool.path.iterdir()] == ["placed_0_2_3.json"]
    assert gatherer.records() == [record]
    return record, run.trace(0, 2, 3)


def test_a_whole_trace_is_compressed_and_described(tmp_path):
    record, path = gather(tmp_path, '{"traceEvents": []}\n')
    assert gzip.decompress(path.read_bytes()) == b'{"traceEvents": []}\n'
    assert (record.status, record.trace, record.trace_bytes) == ("ok", "rank_00003.trace.json.gz", 20)
    assert record.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_half_a_trace_is_corrupt_and_kept(tmp_path):
    record, path = gather(tmp_path, '{"traceEvents": [{"ph": "X"')
    assert record.status == "corrupt"
    assert "after 27 bytes" in record.reason
    assert path.exists()


def test_a_gpu_job_without_kernels_is_noticed(tmp_path):
    record, _ = gather(tmp_path, '{"traceEvents": []}', cuda_used=True)
    assert record.status == "partial"
    assert "no kernel" in record.notes[0]


def test_a_gpu_job_with_kernels_is_well(tmp_path):
    record, _ = gather(tmp_path, '{"traceEvents": [{"cat": "kernel"}]}', cuda_used=True)
    assert (record.status, record.notes) == ("ok", [])


def test_a_record_without_a_trace_is_placed_too(tmp_path):
    record, path = gather(tmp_path, None, status="missing", reason="planted")
    assert (record.reason, path.exists()) == ("planted", False)
    assert RunDir(tmp_path / "run").record(0, 2, 3).exists()


def test_nothing_goes_to_what_stands_in_the_place_of_an_unmounted_run_directory(tmp_path):
    spool, run = Spool(tmp_path / "spool"), RunDir(tmp_path / "mount" / "run")
    spool.path.mkdir()
    announce(spool, "{}")
    gatherer = Gatherer(spool, run, placing=Placing(run, node="n"))
    run.path.parent.mkdir()
    assert gatherer.gather() == []
    assert list(run.path.parent.iterdir()) == []
    assert "is not there any more" in next(iter(gatherer.left.values()))
    run.nodes.mkdir(parents=True)  # it is mounted again
    run.node_claim("n").write_text("{}")
    (record,) = gatherer.gather()
    assert (record.status, gatherer.left) == ("ok", {})


def test_nothing_is_overwritten_and_nothing_is_lost(tmp_path):
    _, path = gather(tmp_path, "{}")
    before = path.read_bytes()
    spool = Spool(tmp_path / "other")
    spool.path.mkdir()
    announce(spool, '{"other": 1}')
    gatherer = Gatherer(spool, RunDir(tmp_path / "run"))
    assert gatherer.gather() == []
    assert path.read_bytes() == before
    assert "not overwritten" in gatherer.left["window_0_2_3.json"]
    assert spool.trace(0, 2, 3).read_text() == '{"other": 1}'
    (record,) = gatherer.records()
    assert record.status == "missing"
    assert str(spool.path) in record.reason


def crashed(tmp_path, monkeypatch, at):
    """A helper that died when it called ``at``, and the spool and the run as it left them."""
    spool, run = Spool(tmp_path / "spool"), RunDir(tmp_path / "run")
    spool.path.mkdir()
    announce(spool, '{"traceEvents": []}')

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(f"rankscope.node.gathering.{at}", die)
        with pytest.raises(KeyboardInterrupt):
            Gatherer(spool, run).gather()
    return spool, run


AT = ["gather.stored", "gather.place", "placing.write_new", "gather.replace_text", "gather.Gatherer._remove"]


@pytest.mark.parametrize("at", AT)
def test_a_helper_that_dies_anywhere_is_followed_by_one_that_finishes(tmp_path, monkeypatch, at):
    spool, run = crashed(tmp_path, monkeypatch, at)
    gatherer = Gatherer(spool, run)
    gatherer.gather()
    (record,) = gatherer.records()
    assert (record.status, record.trace, record.trace_bytes) == ("ok", "rank_00003.trace.json.gz", 19)
    assert record.sha256 == hashlib.sha256(run.trace(0, 2, 3).read_bytes()).hexdigest()
    assert gatherer.left == {}
    assert [path.name for path in spool.path.iterdir()] == ["placed_0_2_3.json"]
    assert sorted(path.name for path in run.window(0, 2).iterdir()) == ["rank_00003.json", "rank_00003.trace.json.gz"]


def test_a_full_store_keeps_the_spool_and_is_tried_ever_more_seldom(tmp_path, monkeypatch):
    spool, run, now, tries = Spool(tmp_path / "spool"), RunDir(tmp_path / "run"), 0.0, []
    spool.path.mkdir()
    announce(spool, "{}")

    def full(path, _):
        tries.append(now)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    gatherer = Gatherer(spool, run, clock=lambda: now)
    with monkeypatch.context() as patched:
        patched.setattr("rankscope.node.gathering.gather.stored", full)
        for second in range(100):
            now = float(second)
            gatherer.gather(last=False)
    assert tries == [0.0, 2.0, 6.0, 14.0, 30.0, 60.0, 90.0]
    assert gatherer.left == {"window_0_2_3.json": "No space left on device"}
    assert list(run.window(0, 2).iterdir()) == []
    # WHEN there is room again at the end of the job, whatever time it is
    assert [record.status for record in gatherer.gather(last=True)] == ["ok"]
    assert gatherer.left == {}


def test_what_a_store_gives_back_is_compared_with_what_it_was_given(tmp_path):
    (tmp_path / "copy").write_bytes(b"rotten")
    with pytest.raises(OSError, match="reads otherwise"):
        stored(tmp_path / "copy", hashlib.sha256(b"written").hexdigest())


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", '{"rank": 1}', "{", json.dumps({**RECORD, "rank": "3"}), json.dumps({**RECORD, "rank": -1}),
     json.dumps({**RECORD, "world_size": 99999999}), json.dumps({**RECORD, "window": "x"}), "\x00" * 1000],
)  # fmt: skip
def test_an_odd_record_costs_that_record_only(tmp_path, text):
    spool, run = Spool(tmp_path / "spool"), RunDir(tmp_path / "run")
    spool.path.mkdir()
    announce(spool, "{}")
    spool.record(0, 1, 0).write_text(text)
    gatherer = Gatherer(spool, run)
    assert [record.rank for record in gatherer.gather()] == [3]
    assert list(gatherer.left) == ["window_0_1_0.json"]
    assert [record.rank for record in gatherer.records()] == [3]


def test_a_record_that_is_a_fifo_stops_nothing(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.path.mkdir()
    os.mkfifo(spool.record(0, 1, 0))
    os.mkfifo(spool.process_record(0, 0))
    gatherer = Gatherer(spool, RunDir(tmp_path / "run"))
    assert gatherer.gather() == []
    assert "a FIFO" in gatherer.left["window_0_1_0.json"]
    assert own_record(spool.process_record(0, 0)) is None


def test_a_message_that_holds_a_secret_is_masked_where_it_is_kept(tmp_path):
    reason = "HTTPError: https://me:hunter22@host/x, token=abcdef"
    record, _ = gather(tmp_path, None, status="partial", reason=reason, notes=["password: hunter22"])
    kept = RunDir(tmp_path / "run").record(0, 2, 3).read_text()
    assert "hunter22" not in kept
    assert "abcdef" not in kept
    assert record.reason == "HTTPError: https://me:***@host/x, token=***"
