"""Hand-made and recorded traces, and a strict reader of a merged timeline."""

from __future__ import annotations

import copy
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rankscope.timeline.merge import merge
from rankscope.trace.files.load import LoadResult, load_traces

DATA = Path(__file__).parents[2] / "data" / "traces"


@cache
def _load(name: str) -> LoadResult:
    return load_traces([DATA / name], workers=1, cache=False)


@pytest.fixture
def recorded() -> Callable[[str], LoadResult]:
    """A recorded trace by name, a copy that may be changed."""
    return lambda name: copy.deepcopy(_load(name))


@dataclass
class Slice:
    pid: int
    tid: int
    start: int
    end: int
    category: str
    name: str
    args: dict[str, Any]
    track: str = ""
    rank: str = ""

    @property
    def of_rank(self) -> int:
        return self.pid - 1000

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass
class Timeline:
    """Times in ns."""

    slices: list[Slice]
    arrows: list[list[Slice]]
    """Each as the slices it connects, in order."""
    labels: dict[int, str]
    about: dict[str, Any]
    text: str = field(repr=False)

    def of(self, category: str, rank: int | None = None) -> list[Slice]:
        return [s for s in self.slices if s.category == category and rank in (None, s.of_rank)]


def _ns(microseconds: Any) -> int:
    exact = Decimal(microseconds) * 1000
    assert exact == int(exact), f"{microseconds} us is no whole number of nanoseconds"
    return int(exact)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def read_strictly(path: Path) -> Timeline:
    """Everything that viewers rely on is checked: they drop what they cannot place, and say nothing."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("ascii")
    whole = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    events = whole["traceEvents"]
    processes: dict[int, str] = {}
    threads: dict[int, tuple[int, str]] = {}
    order: dict[int, int] = {}
    labels: dict[int, str] = {}
    for event in events:
        if event["ph"] != "M":
            continue
        pid, name, args = event["pid"], event["name"], event["args"]
        if name == "process_name":
            assert pid not in processes, "a process is named twice"
            processes[pid] = args["name"]
        elif name == "process_sort_index":
            order[pid] = args["sort_index"]
        elif name == "process_labels":
            labels[pid - 1000] = args["labels"]
        elif name == "thread_name":
            assert event["tid"] not in threads, "a thread is named twice, or in two processes"
            threads[event["tid"]] = (pid, args["name"])
        else:
            assert name == "thread_sort_index"
    assert sorted(processes, key=lambda p: order[p]) == sorted(processes)
    assert not set(processes) & set(threads), "a thread would pass for the main one"
    assert len({(pid, name) for pid, name in threads.values()}) == len(threads), "two tracks of a process share a name"

    slices: list[Slice] = []
    starts: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    ends: dict[int, list[tuple[str, int, int, str]]] = defaultdict(list)
    arrows: dict[int, list[Slice]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = _ns(event["ts"])
            piece = Slice(
                event["pid"], event["tid"], start, start + _ns(event["dur"]), event["cat"], event["name"], event["args"]
            )
            assert piece.length >= 0
            assert threads[piece.tid][0] == piece.pid, "a slice on a track of another process"
            piece.track, piece.rank = threads[piece.tid][1], processes[piece.pid]
            slices.append(piece)
            starts[(piece.tid, start)].append(piece)
        elif event["ph"] in "stf":
            assert (event.get("bp") == "e") == (event["ph"] == "f")
            time = _ns(event["ts"])
            # viewers bind to the innermost open slice: the last that began here, before the arrow in the file
            assert starts[(event["tid"], time)], "an arrow's end where no slice begins"
            ends[event["id"]].append((event["ph"], time, event["pid"], event["cat"]))
            arrows[event["id"]].append(starts[(event["tid"], time)][-1])
        else:
            assert event["ph"] == "M"
    for points in ends.values():
        phases = [phase for phase, *_ in points]
        assert phases == ["s", *["t"] * (len(points) - 2), "f"], phases
        times = [time for _, time, *_ in points]
        assert times == sorted(times), "an arrow goes back in time"
        assert len({category for *_, category in points}) == 1
    tracks: dict[int, list[Slice]] = defaultdict(list)
    for piece in slices:
        tracks[piece.tid].append(piece)
    for track in tracks.values():
        _assert_nested(track)
    return Timeline(slices, list(arrows.values()), labels, whole["rankscope"], text)


def _assert_nested(track: Sequence[Slice]) -> None:
    stack: list[Slice] = []
    for piece in sorted(track, key=lambda s: (s.start, -s.end)):
        while stack and stack[-1].end <= piece.start:
            stack.pop()
        assert not stack or piece.end <= stack[-1].end, f"{piece} ends after {stack[-1]}"
        stack.append(piece)


@pytest.fixture
def strict() -> Callable[[Path], Timeline]:
    return read_strictly


@pytest.fixture(scope="session")
def whole_timeline(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Timeline]:
    """The timeline of a recorded trace with nothing left out. It is made and read once, so tests may not change it."""
    folder = tmp_path_factory.mktemp("timelines")

    @cache
    def made(name: str) -> Timeline:
        return read_strictly(merge(copy.deepcopy(_load(name)), folder / f"{name}.json.gz").path)

    return made


@pytest.fixture
def write_rank(tmp_path: Path) -> Callable[..., Path]:
    """One rank's Kineto file: per step a launch of a GEMM and one of an all-reduce. Times in us of a common clock.

    ``calls`` are (arrival, end) of the all-reduces; ``clock`` is how much this rank's clock is ahead.
    """

    def write(
        rank: int,
        calls: Sequence[tuple[float, float]],
        *,
        clock: float = 0.0,
        first_step: int = 5,
        folder: str = "traces",
        gemm: str = "sm90_gemm",
        operator: str = "aten::mm",
    ) -> Path:
        events: list[dict[str, Any]] = []

        def add(cat: str, name: str, pid: int, tid: int, start: float, length: float, **args: Any) -> None:
            ts = round(start + clock, 3)
            events.append(
                {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": length, "args": args}
            )

        for index, (arrival, end) in enumerate(calls):
            begin = calls[index][0] - 50
            step = begin - 10, end + 5
            add("user_annotation", f"ProfilerStep#{first_step + index}", 100, 100, step[0], round(step[1] - step[0], 3))
            add("cpu_op", operator, 100, 100, begin, 9)
            add("cuda_runtime", "cudaLaunchKernel", 100, 100, begin + 2, 4, correlation=2 * index + 1)
            add("kernel", gemm, rank, 7, begin + 10, 1.001, correlation=2 * index + 1, device=rank, stream=7)
            add("cuda_runtime", "cudaLaunchKernel", 100, 100, begin + 12, 4, correlation=2 * index + 2)
            add(
                "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", rank, 20, arrival, round(end - arrival, 3),
                correlation=2 * index + 2, device=rank, stream=20, **{
                    "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 256, "Out msg nelems": 256,
                    "Group size": 2, "Process Group Name": "0", "Process Group Description": "default_pg",
                    "Process Group Ranks": "[0, 1]",
                },
            )  # fmt: skip
        whole = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            "traceEvents": events,
        }
        path = tmp_path / folder / f"rank_{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(whole))
        return path

    return write
