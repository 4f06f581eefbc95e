"""Findings on a rank whose device memory was exhausted."""

from __future__ import annotations

from rankscope.diagnose.rules.machine.out_of_memory import FRAGMENTED
from rankscope.records.evidence import Evidence
from rankscope.records.rows import MemoryFrame, MemoryRow
from support.diagnosing import ADVICE, find

GIB = 2**30


def row(window: int | None, **more) -> MemoryRow:
    base = {
        "attempt": 0, "rank": 3, "file": "rank_00003.memory_oom.pickle", "segment_allocs": 0, "segment_frees": 0,
        "peak_allocated_bytes": 70 * GIB, "peak_reserved_bytes": 79 * GIB,
        "end_allocated_bytes": 70 * GIB, "end_reserved_bytes": 71 * GIB,
    }  # fmt: skip
    return MemoryRow(window=window, **{**base, **more})


def test_too_much_in_use() -> None:
    held = [MemoryFrame(frame=f"job/m.py:{i} f", bytes=(9 - i) * GIB, count=1) for i in range(4)]
    (found,) = find(Evidence(ranks=[3], memory=[row(None, requested_bytes=2 * GIB, top=held)]))
    assert (found.kind, found.ranks, found.title) == ("out_of_memory", [3], "Rank 3 ran out of device memory")
    assert found.evidence == [
        "An allocation of 2.0 GiB failed.",
        "70.0 GiB were in use, 1.0 GiB more reserved by PyTorch but not in use.",
        "Most at the peak was held by: job/m.py:0 f 9.0 GiB; job/m.py:1 f 8.0 GiB; job/m.py:2 f 7.0 GiB.",
        "rank_00003.memory_oom.pickle opens in https://pytorch.org/memory_viz.",
    ]
    assert found.advice == ADVICE["out_of_memory"]


def test_enough_in_pieces() -> None:
    (found,) = find(Evidence(ranks=[3], memory=[row(None, requested_bytes=512 << 20)]))
    assert found.title == "Rank 3 ran out of device memory, with enough in pieces"
    assert found.evidence[0] == "An allocation of 512.0 MiB failed."
    assert found.advice == list(FRAGMENTED)


def test_the_other_ranks_peaks_are_reported() -> None:
    others = [row(0, rank=rank, peak_allocated_bytes=(60 + rank) * GIB) for rank in (0, 1, 3)]
    (found,) = find(Evidence(ranks=[0, 1, 3], memory=[row(None, device_bytes=80 * GIB), *others]))
    assert found.evidence[0] == "70.0 GiB of 80.0 GiB were in use, 1.0 GiB more reserved by PyTorch but not in use."
    assert found.evidence[1] == "The other ranks' peaks, where they were recorded: 60.0 GiB to 61.0 GiB."


def test_what_was_asked_for_may_be_unknown() -> None:
    (found,) = find(Evidence(ranks=[3], memory=[row(None)]))
    assert found.evidence[0].startswith("70.0 GiB were in use")


def test_a_window_is_no_error() -> None:
    assert find(Evidence(ranks=[3], memory=[row(0)])) == []
