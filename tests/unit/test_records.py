"""Records are checked when they are read: types, sizes, numbers; an error names the field."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os

import pytest

from rankscope.errors import ForeignFileError
from rankscope.limits import MAX_ABSENT_ROWS, MAX_RANKS, MAX_WINDOW_STEPS, absent_ranks
from rankscope.node.manifest import NodeResult
from rankscope.records import evidence, manifest, rank, report, rows, run_steps, spec
from rankscope.records.codec import from_json, to_json
from rankscope.records.manifest import RunManifest, WindowRanks
from rankscope.records.rank import ClockSample, RankRecord
from rankscope.records.report import ClusterReport
from rankscope.records.rows import KernelRow
from rankscope.records.spec import CaptureRequest
from rankscope.rundir.record_files import read_record

EVERY = [
    cls
    for module in (evidence, manifest, rank, report, rows, run_steps, spec)
    for _, cls in inspect.getmembers(module, dataclasses.is_dataclass)
]


def record(**changes: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "rank": 1, "local_rank": 1, "world_size": 2, "host": "a", "pid": 7, "attempt": 0, "window": 0,
    }  # fmt: skip
    return plain | changes


def manifest_of(**changes: object) -> str:
    plain = {
        "run_id": "r", "argv": [], "config": {}, "versions": {}, "hosts": [], "world_size": 2, "attempts": 1,
        "exit_code": 0, "lives": [],
        "windows": [{"attempt": 0, "window": 0, "world_size": 2, "records": [record(), record(**changes)]}],
    }  # fmt: skip
    return json.dumps(plain)


@pytest.mark.parametrize("cls", [*EVERY, NodeResult], ids=lambda cls: cls.__name__)
def test_every_record_can_be_read(cls):
    with pytest.raises(ValueError, match=f"not a {cls.__name__}: an object is wanted, not a list"):
        from_json(cls, "[]")


def test_what_was_written_is_read():
    one = RankRecord(rank=1, local_rank=0, world_size=2, host="ü", pid=3, attempt=0, window=4, trace="t.json", gc_ms=2)
    one.clock.append(ClockSample(realtime_ns=1 << 60, monotonic_ns=5))
    windows = [WindowRanks(attempt=0, window=4, world_size=2, records=[one], mismatches=["a"])]
    whole = RunManifest(
        run_id="r", argv=["a", "\udcff"], config={"a": {"b": [1, None, 2.5]}}, versions={"torch": "2"}, hosts=["h"],
        world_size=None, attempts=1, exit_code=-9, windows=windows, lives=[],
    )  # fmt: skip
    text = to_json(whole)
    text.encode()
    back = from_json(RunManifest, text)
    assert back.windows == windows
    assert back.config == whole.config
    assert back.argv == ["a", "\ufffd"]  # half a pair cannot be written as UTF-8
    assert to_json(back) == text


def test_later_versions_may_say_more():
    assert from_json(RankRecord, json.dumps(record(colour="red", more={"a": []}))).rank == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rank": "0"}, 'rank: a whole number is wanted, not "0"'),
        ({"rank": True}, "rank: a whole number is wanted, not true"),
        ({"rank": 1.0}, "rank: a whole number is wanted, not 1.0"),
        ({"rank": None}, "rank: a whole number is wanted, not null"),
        ({"rank": -1}, "rank: -1 is not possible"),
        ({"rank": MAX_RANKS}, "rank: 1048576 is not possible"),
        ({"world_size": 99999999}, "world_size: 99999999 is not possible, 1 to 1048576 are"),
        ({"world_size": 0}, "world_size: 0 is not possible"),
        ({"window": 10**9}, "window: 1000000000 is not possible"),
        ({"attempt": -1}, "attempt: -1 is not possible"),
        ({"steps_counted": 10**15}, "steps_counted: 1000000000000000 is not possible"),
        ({"pid": 10**30}, "pid: 1000000000000000000000000000000 is not possible"),
        ({"status": "fine"}, 'status: one of ok, partial, missing, corrupt, skipped is wanted, not "fine"'),
        ({"status": ["ok"]}, "status: one of ok, .* is wanted, not a list"),
        ({"host": {}}, "host: text is wanted, not an object"),
        ({"host": None}, "host: text is wanted, not null"),
        ({"agreed": 1}, "agreed: true or false is wanted, not 1"),
        ({"gc_ms": "1"}, 'gc_ms: a number is wanted, not "1"'),
        ({"gc_ms": 10**400}, "gc_ms: 1000.* is beyond the range of numbers"),
        ({"notes": "a"}, 'notes: a list is wanted, not "a"'),
        ({"notes": ["a", 1]}, r"notes\[1\]: text is wanted, not 1"),
        ({"clock": [{"realtime_ns": 1}]}, r"clock\[0\].monotonic_ns: is missing"),
        ({"health": [{"time_ns": 1, "device": "d", "power_w": []}]}, r"health\[0\].power_w: a number is wanted"),
        ({"steps": {"before_ms": [1, None]}}, r"steps.before_ms\[1\]: a number is wanted, not null"),
        ({"trace": "../../etc/passwd"}, "trace: the name of a file beside this one is wanted"),
        ({"trace": "/etc/passwd"}, "trace: the name of a file"),
        ({"snapshot": ".."}, "snapshot: the name of a file"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(changes, said):
    with pytest.raises(ValueError, match=f"not a RankRecord: {said}"):
        from_json(RankRecord, json.dumps(record(**changes)))
    with pytest.raises(ValueError, match=rf"not a RunManifest: windows\[0\].records\[1\].{said}"):
        from_json(RunManifest, manifest_of(**changes))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "-1.1e100", "9" * 101])
def test_numbers_are_finite(text):
    plain = json.dumps(record(gc_ms=12345)).replace("12345", text)
    with pytest.raises(ValueError, match=r"is not JSON|beyond the range"):
        from_json(RankRecord, plain)


@pytest.mark.parametrize(
    "text", ["", "{", "\0", '{"rank": 1} x', b"\xff\xfe", b"\xed\xa0\x80", "[" * 100_000, "9" * 5000]
)
def test_what_is_no_json_is_one_error(text):
    with pytest.raises(ValueError, match="not a CaptureRequest"):
        from_json(CaptureRequest, text)


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_what_is_kept_as_it_comes_is_not_deep(depth):
    deep = "[" * depth + "]" * depth
    text = manifest_of().replace('"config": {}', '"config": {"a": ' + deep + "}")
    with pytest.raises(ValueError, match="nested too deeply"):
        from_json(RunManifest, text)


def test_text_that_would_take_many_times_its_length_is_not_decoded():
    text = '{"a": [' + "[]," * 2_000_000 + "[]]}"
    with pytest.raises(ValueError, match="more lists and objects than any does"):
        from_json(CaptureRequest, text)
    with pytest.raises(ValueError, match="more lists and objects than any does"):
        from_json(CaptureRequest, text.encode())


def test_a_large_record_is_no_fault():
    # a report of 4,096 ranks and 24 steps: what is many is believed when each takes its room
    row = KernelRow(name="k" * 80, category="kernel", ms_per_step=1.234567890123, launches_per_step=12, share_pct=0.5)
    plain = {"run": {"source": "run"}, "ranks": [], "clock": {"method": "none"}, "verdict": {"kind": "balanced"},
             "collectives": {"count": 0, "matched_pct": None, "method": "none"},
             "kernels": [dataclasses.asdict(row)] * 98_304}  # fmt: skip
    assert len(from_json(ClusterReport, json.dumps(plain)).kernels) == 98_304


def test_requests_have_a_ceiling():
    def ask(steps: int) -> str:
        return json.dumps({"name": "request_0000", "steps": steps, "warmup": 1})

    assert from_json(CaptureRequest, ask(MAX_WINDOW_STEPS)).steps == MAX_WINDOW_STEPS
    for steps in (0, MAX_WINDOW_STEPS + 1, 1_000_000, -1):
        with pytest.raises(ValueError, match=r"steps: .* is not possible"):
            from_json(CaptureRequest, ask(steps))


def test_absent_ranks_take_the_time_of_what_is_there():
    assert absent_ranks(5, [1, 3, 7, -1]) == ([0, 2, 4], 0)
    assert absent_ranks(0, [1]) == ([], 0)
    assert absent_ranks(3, range(3)) == ([], 0)
    named, more = absent_ranks(10**15, {0, 1, 10**14, 10**16})
    assert named == list(range(2, 2 + MAX_ABSENT_ROWS))
    assert more == 10**15 - 3 - MAX_ABSENT_ROWS


def test_half_pairs_become_words():
    back = from_json(RankRecord, json.dumps(record(host="\ud800", notes=["\udfff"])))
    assert (back.host, back.notes) == ("\ufffd", ["\ufffd"])
    to_json(back).encode()


def test_a_record_is_read_from_its_file(tmp_path):
    path = tmp_path / "rank_00001.json"
    path.write_text(json.dumps(record()))
    assert read_record(RankRecord, path).rank == 1
    path.write_text(json.dumps(record(rank="x")))
    with pytest.raises(ForeignFileError, match=rf"{path}: not a RankRecord: rank: .*; remove it"):
        read_record(RankRecord, path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ForeignFileError, match="a FIFO"):
        read_record(RankRecord, path)
