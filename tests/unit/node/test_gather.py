"""From spool to run directory: what is checked, and what is said of it."""

from __future__ import annotations

import gzip
import hashlib

from rankscope.node.gather import gather_ready
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


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
    (record,) = gather_ready(spool, run)
    assert list(spool.path.iterdir()) == []
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


def test_nothing_is_overwritten(tmp_path):
    _, path = gather(tmp_path, "{}")
    before = path.read_bytes()
    record, _ = gather(tmp_path, '{"other": 1}')
    assert record.status == "corrupt"
    assert "not overwritten" in record.reason
    assert path.read_bytes() == before
