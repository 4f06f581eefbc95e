"""The rank of a file: content, process groups, names and the user's option, also if they disagree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.errors import ConfigError
from rankscope.trace.files.load import LoadResult, load_traces

Write = Callable[..., Path]
Make = Callable[..., dict[str, Any]]
BASE = 1_790_000_000_000_000_000


def says(rank: int, world: int = 4, *groups: list[int]) -> dict[str, Any]:
    listed = [{"pg_name": str(i), "pg_desc": f"g{i}", "ranks": ranks} for i, ranks in enumerate(groups)]
    return {"distributedInfo": {"rank": rank, "world_size": world, "pg_config": listed}}


@pytest.fixture
def record(write_trace: Write, make_event: Make) -> Callable[..., Path]:
    """One process: a step, its launch and its kernel, and a collective in each of the groups."""

    def write(name: str, *, pid: int = 1, at: int = 0, groups: list[list[int]] | None = None, **top: Any) -> Path:
        rows = [
            make_event(at, 100, cat="user_annotation", name="ProfilerStep#3", pid=pid, tid=pid, args={}),
            make_event(at + 1, 2, cat="cuda_runtime", name="cudaLaunchKernel", pid=pid, tid=pid),
            make_event(at + 5, 50 + pid % 7),
        ]
        for number, ranks in enumerate(groups or []):
            args = {
                "stream": 9,
                "Collective name": "allreduce",
                "Process Group Name": str(number),
                "Process Group Ranks": str(ranks),
                "Group size": len(ranks),
            }
            rows.append(make_event(at + 60 + number, 1, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL()", args=args))
        return write_trace(rows, name=name, baseTimeNanoseconds=BASE, **top)

    return write


def ranks(result: LoadResult) -> dict[str, int | None]:
    return {Path(s.path).name: s.rank for s in result.sources if s.status == "used"}


def reasons(result: LoadResult, status: str) -> list[str]:
    return [s.reason or "" for s in result.sources if s.status == status]


def test_the_content_before_the_name(record: Callable[..., Path], tmp_path: Path) -> None:
    for own, name in ((1, "rank_0.json"), (0, "run_7.json")):
        record(name, pid=10 + own, **says(own, 2))
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {"rank_0.json": 1, "run_7.json": 0}
    assert any("the file name says rank 0, the content rank 1" in r for r in reasons(result, "used"))


@pytest.mark.parametrize("names", [["rank_0.json", "rank_1.json"], ["profile_0.json", "profile_1.json"]])
def test_processes_that_all_say_rank_0_are_identified_by_their_names(
    record: Callable[..., Path], tmp_path: Path, names: list[str]
) -> None:
    for pid, name in enumerate(names):
        record(name, pid=10 + pid, **says(0, 2))
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {names[0]: 0, names[1]: 1}
    assert any("the content says rank 0" in n for n in result.traces[1].notes)


def test_processes_that_all_say_rank_0_under_names_that_say_nothing(
    record: Callable[..., Path], tmp_path: Path
) -> None:
    for pid in (41377, 41233):
        record(f"host_{pid}.json", pid=pid, **says(0, 2))
    result = load_traces([tmp_path])
    assert result.traces == []
    assert all("says rank 0" in r and "--rank" in r for r in reasons(result, "unassigned"))
    assert not list(tmp_path.glob("*.parquet"))
    given = load_traces([tmp_path], ranks={Path("host_41377.json"): 1, tmp_path / "host_41233.json": 0}, cache=False)
    assert ranks(given) == {"host_41377.json": 1, "host_41233.json": 0}


def test_a_rank_outside_of_its_process_groups_is_none(record: Callable[..., Path], tmp_path: Path) -> None:
    record("rank_2.json", pid=10, groups=[[2, 3]], **says(0))
    record("rank_3.json", pid=11, groups=[[2, 3]], **says(3))
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {"rank_2.json": 2, "rank_3.json": 3}
    assert any("is in none of its process groups (ranks 2, 3)" in r for r in reasons(result, "used"))


def test_the_only_rank_in_all_groups(record: Callable[..., Path], tmp_path: Path) -> None:
    """Tensor parallel pairs [0, 1] and [2, 3], data parallel pairs [0, 2] and [1, 3]: each rank is in one of each."""
    for rank, pair, across in ((0, [0, 1], [0, 2]), (1, [0, 1], [1, 3]), (2, [2, 3], [0, 2]), (3, [2, 3], [1, 3])):
        record(f"host_{4711 * rank % 997}.json", pid=10 + rank, groups=[pair, across])
    result = load_traces([tmp_path], cache=False)
    assert sorted(t.events.pid.max() - 10 for t in result.traces) == [0, 1, 2, 3]
    assert all(t.events.pid.max() - 10 == t.rank for t in result.traces)


def test_the_group_of_one_process_is_that_of_a_job_of_its_own(record: Callable[..., Path], tmp_path: Path) -> None:
    """The group [0] says nothing about a job of several ranks; the group [1] is only on its rank 1."""
    record("rank0.json", pid=1, groups=[[0, 1]], **says(0, 2))
    record("debug.json", pid=3, at=10_000, groups=[[0]])
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {"rank0.json": 0}
    assert "neither the content nor the name" in reasons(result, "unassigned")[0]
    record("other.json", pid=2, groups=[[1]])
    assert ranks(load_traces([tmp_path], cache=False)) == {"rank0.json": 0, "other.json": 1}


def test_a_rank_recorded_alone_at_another_time_is_left_out(record: Callable[..., Path], tmp_path: Path) -> None:
    """Its steps would change the job's means, and no rank is there to compare it with."""
    for rank in range(2):
        record(f"rank{rank}.json", pid=10 + rank, at=10_000, **says(rank, 3))
    record("old_rank1.json", pid=7, **says(1, 3))
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {"rank0.json": 0, "rank1.json": 1}
    assert "no other rank was recorded at that time" in reasons(result, "ignored")[0]
    assert result.notes[0].startswith("old_rank1.json: left out")
    record("rank2.json", pid=12, at=20_000, **says(2, 3))  # it has no other recording: that of a clock that is off
    assert set(ranks(load_traces([tmp_path], cache=False))) == {"rank0.json", "rank1.json", "rank2.json"}


def test_one_process_alone_is_rank_0_and_told_so(record: Callable[..., Path], tmp_path: Path) -> None:
    record("trace.json")
    record("trace_later.json", at=1000)
    result = load_traces([tmp_path], cache=False)
    assert [(t.window, t.rank) for t in result.traces] == [(0, 0), (1, 0)]
    assert all("called rank 0" in r for r in reasons(result, "used"))


def test_a_copy_is_no_rank(record: Callable[..., Path], tmp_path: Path) -> None:
    path = record("rank_0.json", pid=5)
    record("rank_1.json", pid=6)
    (tmp_path / "old").mkdir()
    shutil.copy(path, tmp_path / "old" / "rank_2.json")
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {"rank_0.json": 0, "rank_1.json": 1}
    assert reasons(result, "unusable") == [f"the same recording as {path}, which is used"]


def test_of_two_recordings_of_a_rank_the_fuller_is_used(
    record: Callable[..., Path], write_trace: Write, make_event: Make, tmp_path: Path
) -> None:
    write_trace([make_event(0, 9, pid=5)], name="a_rank_0.json", baseTimeNanoseconds=BASE, **says(0))
    record("b_rank_0.json", pid=5, **says(0))
    assert ranks(load_traces([tmp_path], cache=False)) == {"b_rank_0.json": 0}


def test_jobs_of_other_sizes_are_left_to_themselves(record: Callable[..., Path], tmp_path: Path) -> None:
    for folder, world in (("a", 2), ("b", 3)):
        for rank in range(world):
            record(f"{folder}/rank{rank}.json", pid=10 * world + rank, at=10_000 * world, **says(rank, world))
    result = load_traces([tmp_path], cache=False)
    assert [t.meta.world_size for t in result.traces] == [3, 3, 3]
    assert len(reasons(result, "ignored")) == 2
    (note,) = result.notes
    assert "world sizes differ" in note
    assert "the job of 2 ranks (2 files)" in note


def test_jobs_at_the_same_time_are_identified_by_their_folders(record: Callable[..., Path], tmp_path: Path) -> None:
    for number, folder in enumerate(("trial_a", "trial_b")):
        for rank in range(2):
            record(f"{folder}/x{rank}.json", pid=10 * number + rank, **says(rank, 2))
    result = load_traces([tmp_path], cache=False)
    assert {Path(t.source).parent.name for t in result.traces} == {"trial_a"}
    assert "same ranks at the same time" in result.notes[0]


def test_replicas_of_an_inference_server_are_jobs(record: Callable[..., Path], tmp_path: Path) -> None:
    for replica in range(2):
        for rank in range(2):
            name = f"1790.1-TP-{rank}-DP-{replica}.trace.json"
            record(name, pid=10 * replica + rank, groups=[[0, 1]], **says(rank, 2))
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {"1790.1-TP-0-DP-0.trace.json": 0, "1790.1-TP-1-DP-0.trace.json": 1}
    assert "each dp of the names holds all ranks of a job" in result.notes[0]


def test_contents_that_knew_of_no_job(record: Callable[..., Path], tmp_path: Path) -> None:
    for rank in range(3):
        record(f"profile_{rank}.json", pid=10 + rank, **says(0, 1))
    assert ranks(load_traces([tmp_path], cache=False)) == {f"profile_{r}.json": r for r in range(3)}


def test_jobs_at_the_same_time_are_identified_by_the_rest_of_their_names(
    record: Callable[..., Path], tmp_path: Path
) -> None:
    for number, job in enumerate(("lr1", "lr2")):
        for rank in range(3):
            record(f"{job}_rank{rank}.json", pid=10 * number + rank, **says(rank, 3))
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {f"lr1_rank{rank}.json": rank for rank in range(3)}
    assert "the job of the files lr2_rank* (3 files)" in result.notes[0]


def test_the_content_knew_no_job_but_its_process_groups_did(record: Callable[..., Path], tmp_path: Path) -> None:
    """Each says rank 0 of a world of one; the groups of its kernels are of four ranks, as the names are."""
    for rank in range(4):
        record(f"rank{rank}.json", pid=10 + rank, groups=[[0, 1, 2, 3]], **says(0, 1))
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {f"rank{rank}.json": rank for rank in range(4)}
    assert result.notes == []


@pytest.mark.parametrize("again", [False, True])
def test_windows_of_other_processes_are_reported(record: Callable[..., Path], tmp_path: Path, again: bool) -> None:
    for window in range(2):
        for rank in range(2):
            pid = 10 + rank + 50 * window * again
            record(f"w{window}/rank{rank}.json", pid=pid, at=10_000 * window, **says(rank, 2))
    result = load_traces([tmp_path], cache=False)
    assert [(t.window, t.rank) for t in result.traces] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert ["other processes" in note for note in result.notes] == [True] * again


def test_single_processes_in_folders_are_jobs(record: Callable[..., Path], tmp_path: Path) -> None:
    for pid, run in ((11, "lr_1"), (12, "lr_3")):
        record(f"{run}/trace.json", pid=pid, **says(0, 1))
    result = load_traces([tmp_path], cache=False)
    assert [Path(t.source).parent.name for t in result.traces] == ["lr_1"]
    assert "the job in lr_3 (1 files)" in result.notes[0]


def test_a_process_that_knew_no_job_belongs_to_its_neighbours(record: Callable[..., Path], tmp_path: Path) -> None:
    record("rank0.json", pid=1, **says(0, 1))
    record("rank1.json", pid=2, **says(1, 2))
    assert ranks(load_traces([tmp_path], cache=False)) == {"rank0.json": 0, "rank1.json": 1}


def test_a_process_whose_groups_are_larger_than_its_job_is_of_no_other_job(
    record: Callable[..., Path], tmp_path: Path
) -> None:
    """It was recorded from before init_process_group on, and says rank 0 of 1, as no rank of its groups can."""
    record("rank0.json", pid=1, groups=[[0, 1]], **says(0, 2))
    record("rank1.json", pid=2, groups=[[0, 1]], **says(0, 1))
    result = load_traces([tmp_path], cache=False)
    assert ranks(result) == {"rank0.json": 0, "rank1.json": 1}
    assert result.notes == []


def test_the_users_word(record: Callable[..., Path], tmp_path: Path) -> None:
    for pid in (1, 2):
        record(f"x/{pid}/trace.json", pid=pid, **says(0, 2))
    given = {Path("1/trace.json"): 1, Path("x/2/trace.json"): 0}
    result = load_traces([tmp_path], ranks=given, cache=False)
    assert {Path(s.path).parent.name: s.rank for s in result.sources} == {"1": 1, "2": 0}
    assert all("--rank" in r for r in reasons(result, "used"))
    with pytest.raises(ConfigError, match="names 2 traces"):
        load_traces([tmp_path], ranks={Path("trace.json"): 1}, cache=False)
    with pytest.raises(ConfigError, match="none of the traces"):
        load_traces([tmp_path], ranks={Path("nowhere.json"): 1}, cache=False)


def merged(make_event: Make, ids: list[tuple[Any, Any]], labels: list[dict[str, Any]] = []) -> list[dict[str, Any]]:  # noqa: B006
    rows = list(labels)
    for number, (host, device) in enumerate(ids):
        rows += [
            make_event(0, 100, cat="user_annotation", name="ProfilerStep#3", pid=host, tid=1, args={}),
            make_event(1, 2, cat="cuda_runtime", name="cudaLaunchKernel", pid=host, tid=1),
            make_event(5, 50 + number, pid=device),
        ]
    return rows


def named(pid: int, label: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": label}}


@pytest.mark.parametrize(
    ("ids", "labels"),
    [
        ([("[TP00] 4200", "[TP00] 0"), ("[TP01] 4201", "[TP01] 0")], []),
        ([("rank 0: 77", "rank 0: gpu"), ("rank 1: 77", "rank 1: gpu")], []),
        ([(77, 5), (78, 6)], [named(77, "Rank 0"), named(5, "Rank 0 GPU"), named(78, "Rank 1"), named(6, "Rank 1")]),
        ([(4200, 0), (1_004_200, 1_000_000)], []),
    ],
)  # fmt: skip
def test_a_merged_file_is_taken_apart(
    write_trace: Write, make_event: Make, tmp_path: Path, ids: list[tuple[Any, Any]], labels: list[dict[str, Any]]
) -> None:
    write_trace(merged(make_event, ids, labels), name="merged.json", baseTimeNanoseconds=BASE, **says(0, 2))
    result = load_traces([tmp_path])
    assert [t.rank for t in result.traces] == [0, 1]
    for number, trace in enumerate(result.traces):
        (kernel,) = trace.events.duration[trace.events.stream >= 0].tolist()
        assert kernel == (50 + number) * 1000
        assert trace.events.launch[trace.events.stream >= 0].tolist() != [-1]
        assert "merged" in " ".join(trace.notes)
    assert not list(tmp_path.glob("*.parquet"))


def test_a_merged_file_that_cannot_be_taken_apart_is_refused(
    write_trace: Write, make_event: Make, tmp_path: Path
) -> None:
    write_trace(merged(make_event, [(4200, 0), (4201, 1)]), name="merged-rank0.json")
    result = load_traces([tmp_path])
    assert result.traces == []
    assert "holds several processes (4200, 4201)" in reasons(result, "unusable")[0]


def test_a_cached_trace_keeps_no_rank_of_its_name(record: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "run.json").touch()  # so that the columns lie beside the traces
    record("rank_3.json", pid=1)
    record("rank_1.json", pid=2)
    assert [t.rank for t in load_traces([tmp_path]).traces] == [1, 3]
    for old, new in (("rank_3", "rank_2"),):
        for suffix in (".json", ".parquet"):
            (tmp_path / f"{old}{suffix}").rename(tmp_path / f"{new}{suffix}")
    assert [t.rank for t in load_traces([tmp_path]).traces] == [1, 2]
    assert json.loads(json.dumps(ranks(load_traces([tmp_path])))) == {"rank_1.json": 1, "rank_2.json": 2}
