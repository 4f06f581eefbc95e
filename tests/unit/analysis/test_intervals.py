from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.analysis.rank import intervals

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


def _set(found: list[tuple[int, int]]) -> intervals.Spans:
    starts = np.array([s for s, _ in found], np.int64)
    return intervals.union(starts, starts + np.array([d for _, d in found], np.int64))


def _points(spans: intervals.Spans) -> set[int]:
    return {t for s, e in zip(*map(list, spans), strict=True) for t in range(s, e)}


@given(pairs, pairs)
def test_sets_behave_like_sets_of_points(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    x, y = _set(a), _set(b)
    assert _points(x) == {t for s, d in a for t in range(s, s + d)}
    assert _points(intervals.intersect(x, y)) == _points(x) & _points(y)
    assert _points(intervals.subtract(x, y)) == _points(x) - _points(y)
    assert _points(intervals.clip(x, 10, 30)) == _points(x) & set(range(10, 30))
    assert _points(intervals.complement(x, 5, 50)) == set(range(5, 50)) - _points(x)
    for starts, ends in (intervals.intersect(x, y), intervals.subtract(x, y), intervals.complement(x, 5, 50)):
        assert (starts < ends).all()
        assert (ends[:-1] < starts[1:]).all()  # no two of them touch
    assert intervals.measure(x) == len(_points(x))
    times = np.arange(80)
    assert set(times[intervals.contains(x, times)].tolist()) == _points(x)


@given(pairs, st.integers(0, 70), st.integers(0, 20))
def test_cover_counts_what_lies_inside(a: list[tuple[int, int]], start: int, length: int) -> None:
    x = _set(a)
    found = intervals.cover(x, np.array([start]), np.array([start + length]))
    assert found.tolist() == [len(_points(x) & set(range(start, start + length)))]
    bounds = np.array([0, start, start, start + length, 100])
    parts = [len(_points(x) & set(range(a, b))) for a, b in itertools.pairwise(bounds)]
    assert intervals.cover_between(x, bounds).tolist() == parts


def test_touching_intervals_are_joined() -> None:
    starts, ends = intervals.union(np.array([0, 10, 30]), np.array([10, 20, 40]))
    assert (starts.tolist(), ends.tolist()) == ([0, 30], [20, 40])


@pytest.mark.parametrize("operation", [intervals.intersect, intervals.subtract])
def test_empty_sets(operation: object) -> None:
    assert intervals.measure(operation(intervals.EMPTY, intervals.EMPTY)) == 0  # type: ignore[operator]
