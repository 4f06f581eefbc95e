"""Links of launches and steps, on small columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.trace.columns import Category
from rankscope.trace.kineto.build import read_trace
from rankscope.trace.kineto.link import link_launches, misplaced

ROW = st.tuples(
    st.sampled_from([Category.KERNEL, Category.CUDA_RUNTIME, Category.CPU_OP]), st.integers(-1, 4), st.integers(0, 20)
)


def slow_link(rows: list[tuple[int, int, int]]) -> list[int]:
    """What link_launches promises, one event after the other."""
    result = []
    for category, correlation, start in rows:
        calls = [i for i, (c, k, _) in enumerate(rows) if c == Category.CUDA_RUNTIME and k == correlation > 0]
        before = [i for i in calls if rows[i][2] <= start]
        if category != Category.KERNEL or not calls:
            result.append(-1)
        else:
            result.append(before[-1] if before else calls[0])
    return result


@settings(max_examples=300)
@given(st.lists(ROW, max_size=30))
def test_links_are_those_of_the_slow_way(rows: list[tuple[int, int, int]]) -> None:
    rows.sort(key=lambda r: r[2])
    category, correlation, start = (np.array([r[i] for r in rows], np.int64) for i in range(3))
    assert link_launches(category.astype(np.int8), correlation, start).tolist() == slow_link(rows)


def test_steps_of_one_thread_do_not_swallow_each_other(
    write_trace: Callable[..., Path], make_event: Callable[..., dict[str, Any]]
) -> None:
    def step(n: int, ts: int, dur: int, tid: int = 1) -> dict[str, Any]:
        return make_event(ts, dur, cat="user_annotation", name=f"ProfilerStep#{n}", pid=1, tid=tid)

    # a step of no main thread (its id is not the process's) counts only where there is no other
    sent = [step(7, 0, 10), step(8, 10, 10), step(9, 25, 10), step(100, 0, 50, tid=2), make_event(21, 1, cat="cpu_op")]
    trace = read_trace(write_trace(sent))
    assert trace.steps.number.tolist() == [7, 8, 9]
    assert trace.events.step[trace.events.category == Category.CPU_OP].tolist() == [-1]
    others = read_trace(write_trace([step(n, n * 10, 10, tid=2) for n in range(3)]))
    assert others.steps.number.tolist() == [0, 1, 2]


def test_marks_of_two_schedules_that_cross(
    write_trace: Callable[..., Path], make_event: Callable[..., dict[str, Any]]
) -> None:
    def step(n: int, ts: float, dur: float) -> dict[str, Any]:
        return make_event(ts, dur, cat="user_annotation", name=f"ProfilerStep#{n}", pid=1, tid=1)

    def found(marks: list[dict[str, Any]]) -> list[int]:
        return [int(n) for n in read_trace(write_trace(marks)).steps.number]

    one = [step(30 + n, 100 * n, 100) for n in range(4)]
    other = [step(n, 100 * n + 50, 100) for n in range(3)]  # covers less time
    assert found(one + other) == [30, 31, 32, 33]
    assert found(one[:2] + other) == [0, 1, 2]
    # of two that go on, the one whose number follows is the same schedule
    assert found([step(4, 0, 100), step(9, 50, 50), step(10, 100, 100), step(5, 110, 100), step(6, 210, 100)]) == [
        4,
        5,
        6,
    ]
    # clocks are read one after the other: no crossing
    assert found([step(7, 0, 100), step(8, 99.5, 100), step(9, 200, 100)]) == [7, 8, 9]
    # a restarted count is one schedule
    assert found([step(7, 0, 100), step(8, 100, 100), step(0, 200, 100)]) == [7, 8, 0]


def test_kernels_that_overrun_their_stream_are_reported(
    write_trace: Callable[..., Path], make_event: Callable[..., dict[str, Any]]
) -> None:
    other = {"stream": 8, "correlation": 1}
    rows = [make_event(0, 10), make_event(8, 4), make_event(12, 3), make_event(5, 4, tid=8, args=other)]
    (note,) = [n for n in read_trace(write_trace(rows)).notes if "end after" in n]
    assert note.startswith("1 kernels or copies end after the next one of their stream begins, by 2.0 us")
    touching = [make_event(0, 10), make_event(9.5, 4), make_event(13.5, 3)]  # half a microsecond is rounding
    assert not any("end after" in n for n in read_trace(write_trace(touching)).notes)


@pytest.mark.parametrize(
    ("said", "numbers"),
    [([1, 1, 1], [1, 2, 3]), ([7, 8, 7, 8], [7, 8, 9, 10]), ([3, 5, 6], [3, 5, 6]), ([7, 8, 0], [7, 8, 0])],
)
def test_marks_that_repeat_their_numbers(
    write_trace: Callable[..., Path], make_event: Callable[..., dict[str, Any]], said: list[int], numbers: list[int]
) -> None:
    events = [
        make_event(100 * i, 99, cat="user_annotation", name=f"ProfilerStep#{n}", pid=1, tid=1, args={})
        for i, n in enumerate(said)
    ]
    trace = read_trace(write_trace([*events, make_event(10, 5)]))
    assert trace.steps.number.tolist() == numbers
    assert any("repeat their numbers" in note for note in trace.notes) == (said != numbers)


@pytest.mark.parametrize(("moved", "longer", "expected"), [(0, 0, []), (10**6, 0, [150]), (0, 10**6, [150])])
def test_a_device_record_far_beyond_the_others_is_damaged(moved: int, longer: int, expected: list[int]) -> None:
    """A launch each 10 ns, and its kernel 5 ns later, for 5 ns: 2 us in all. One is moved, or takes, 1 ms."""
    category = np.array([Category.CUDA_RUNTIME, Category.KERNEL] * 200, np.int8)
    stream = np.array([-1, 7] * 200, np.int32)
    start, duration = np.arange(400) * 5, np.full(400, 5)
    start[299] += moved
    duration[299] += longer
    order = np.argsort(start, kind="stable")
    found = misplaced(category[order], np.zeros(400, np.int64), stream[order], start[order], duration[order])
    assert order[found].tolist() == [2 * n - 1 for n in expected]


def test_a_device_that_is_behind_its_host_is_not_damaged() -> None:
    """All launches in 100 ns, and then kernels for 100 us."""
    category = np.array([Category.CUDA_RUNTIME] * 100 + [Category.KERNEL] * 100, np.int8)
    stream = np.array([-1] * 100 + [7] * 100, np.int32)
    start = np.concatenate((np.arange(100), 50 + 1000 * np.arange(100)))
    duration = np.concatenate((np.ones(100, np.int64), np.full(100, 1000)))
    assert not len(misplaced(category, np.zeros(200, np.int64), stream, start, duration))
