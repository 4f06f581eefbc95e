"""Which ranks had to record, which are missing, and why."""

from __future__ import annotations

from rankscope.limits import MAX_ABSENT_ROWS
from rankscope.node.manifest import NodeResult, build_manifest
from rankscope.records.codec import from_json, to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import RankRecord
from rankscope.records.spec import ScheduleSpec


def record(rank: int, world: int = 3, **fields) -> RankRecord:
    return RankRecord(rank=rank, local_rank=rank, world_size=world, host="h", pid=rank, attempt=0, **fields)


def manifest(lives: list[RankRecord], records: list[RankRecord], *, repeat: int = 1) -> RunManifest:
    built = build_manifest(
        [NodeResult(node="n", host="h", lives=lives, records=records)],
        run_id="r", argv=[], config={}, versions={},
        schedule=ScheduleSpec(skip_first=10, wait=1, warmup=2, active=6, repeat=repeat),
    )  # fmt: skip
    assert from_json(RunManifest, to_json(built)) == built
    return built


def test_every_rank_of_the_world_is_listed():
    # GIVEN rank 0 recorded, rank 1 was killed in the window, and nobody ever heard of rank 2
    lives = [record(0), record(1, status="partial", reason="killed", open_window=0)]
    (window,) = manifest(lives, [record(0, window=0, trace="t")]).windows
    assert [(r.rank, r.status) for r in window.records] == [(0, "ok"), (1, "missing"), (2, "missing")]
    assert window.records[1].reason == "killed"
    assert "run.dir" in window.records[2].reason


def test_of_a_world_that_is_mostly_missing_some_are_named_and_the_rest_is_counted():
    records = [record(r, 1_000_000, window=0) for r in (0, 999_999)]
    (window,) = manifest(records, records).windows
    assert [r.rank for r in window.records] == [*range(MAX_ABSENT_ROWS + 1), 999_999]
    # 1,000,000 - 2 that are there - 4,096 that are named
    assert window.mismatches == ["995902 ranks of 1000000 besides the 4096 named as missing left no record either"]


def test_a_rank_beyond_the_world_is_kept():
    (window,) = manifest([record(0)], [record(0, window=0), record(7, window=0)]).windows
    assert [(r.rank, r.status) for r in window.records] == [(0, "ok"), (1, "missing"), (2, "missing"), (7, "ok")]


def test_a_window_that_no_rank_survived_is_listed():
    lives = [record(r, status="partial", reason="killed", open_window=0) for r in range(3)]
    (window,) = manifest(lives, []).windows
    assert {r.status for r in window.records} == {"missing"}


def test_ranks_that_recorded_other_steps_are_reported():
    records = [record(r, window=0, trace="t", first_step=13 if r else 14, step_source="optimizer") for r in range(3)]
    (window,) = manifest([record(r) for r in range(3)], records).windows
    assert window.mismatches == ["the first recorded step differs between ranks: 13 on ranks 1, 2; 14 on rank 0"]


def test_what_agents_had_to_say_is_reported():
    # GIVEN two ranks with one message, one of a window that is the reason why it failed, and one about a trace
    lives = [record(0, notes=["m"]), record(1, notes=["m", "window 0: full disk"])]
    records = [record(0, window=0, notes=["no kernel"]), record(1, window=0, status="partial", reason="full disk")]
    assert manifest(lives, records).notes == ["ranks 0, 1: m", "rank 0: no kernel"]
    many = manifest([record(0, notes=[f"m{number}" for number in range(23)])], records).notes
    assert (many[19], many[20:]) == ("rank 0: m19", ["4 more messages of ranks are in run.json"])


def test_for_a_short_job_the_first_step_of_the_window_is_reported():
    (note,) = manifest([record(r, steps_counted=4, step_source="optimizer") for r in range(3)], []).notes
    assert "after 4 steps" in note
    assert "from step 13" in note  # 10 + 1 + 2


def test_for_a_job_without_steps_or_ranks_the_reason_is_reported():
    assert "rankscope.step()" in manifest([record(0)], []).notes[0]
    assert "import torch" in manifest([], []).notes[0]


def test_planned_windows_that_did_not_open_are_reported():
    # GIVEN windows planned for steps 13 to 18, 22 to 27 and 31 to 36, of which the job came to the first only
    opened = [record(r, window=0, trace="t", origin="plan") for r in range(3)]
    lives = [record(r, steps_counted=25) for r in range(3)]
    (note,) = manifest(lives, opened, repeat=3).notes
    assert note == "the job ended after 25 steps, before 2 of 3 planned windows opened"
    assert manifest(lives, opened).notes == []


def test_the_exit_code_is_that_of_the_node_that_failed():
    def ended(*codes: int | None) -> int | None:
        results = [NodeResult(node=str(n), host="h", lives=[], records=[], exit_code=c) for n, c in enumerate(codes)]
        schedule = ScheduleSpec(skip_first=10, wait=1, warmup=2, active=6, repeat=1)
        return build_manifest(results, run_id="r", argv=[], config={}, versions={}, schedule=schedule).exit_code

    assert ended(0, 0) == 0
    assert ended(0, 1) == 1
    assert ended(0, None) is None  # a launcher was killed, and nobody knows
    assert ended(None, 1) == 1
