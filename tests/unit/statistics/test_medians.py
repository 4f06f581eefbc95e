"""Medians of all others, by hand and compared with the definition."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.statistics.grouping import grouped, largest_by_key
from rankscope.statistics.medians import (
    median_along,
    median_of_known,
    median_of_known_others,
    median_of_others,
    medians_by_key,
)

nan = float("nan")


def test_the_median_of_the_others_by_hand() -> None:
    """Of 1, 2, 4, 8 the others of 1 are 2, 4, 8: their middle is 4; of two numbers it is the other one."""
    assert median_of_others(np.array([[1.0, 2.0, 4.0, 8.0]])).tolist() == [[4.0, 4.0, 2.0, 2.0]]
    assert median_of_others(np.array([[3.0, 5.0]])).tolist() == [[5.0, 3.0]]
    assert median_of_others(np.array([[9.0, 1.0, 2.0]])).tolist() == [[1.5, 5.5, 5.0]]


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 17])
def test_many_with_ties(size: int) -> None:
    table = np.random.default_rng(size).integers(0, 5, (50, size)).astype(float)
    slowly = [np.median(np.delete(table, own, axis=1), axis=1) for own in range(size)]
    assert np.array_equal(median_of_others(table), np.stack(slowly, axis=1))


def test_what_is_not_known_is_no_other() -> None:
    table = np.array([[1.0, nan, 4.0, 8.0], [nan, nan, 4.0, nan]])
    others = median_of_known_others(table)
    assert others[0, [0, 2, 3]].tolist() == [6.0, 4.5, 2.5]
    assert np.isnan(others[0, 1])
    assert np.isnan(others[1]).all()  # there is no other
    assert median_of_known(table).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("shape", [(1, 1), (5, 2), (4, 3), (3, 8), (7, 64)])
def test_along_an_axis_it_is_the_median_of_numpy(shape: tuple[int, int]) -> None:
    table = np.random.default_rng(1).normal(1e9, 1e6, shape)
    table.flat[0] = table.flat[-1]
    for axis in (0, 1):
        assert np.array_equal(median_along(table, axis), np.median(table, axis=axis, keepdims=True))
        whole = table.astype(np.int64)
        assert np.array_equal(median_along(whole, axis), np.median(whole, axis=axis, keepdims=True))
    table[-1, 0] = np.nan
    assert np.isnan(median_along(table, 1)[-1, 0])
    assert np.array_equal(median_along(table, 0), np.median(table, axis=0, keepdims=True), equal_nan=True)


def test_of_each_key() -> None:
    """Key 0 has 7 and 1, key 2 has 5, 2 and 9, key 3 has 4 and 4; key 1 has nothing."""
    key, value = np.array([2, 0, 2, 3, 0, 3, 2]), np.array([5.0, 7.0, 2.0, 4.0, 1.0, 4.0, 9.0])
    for kind in (np.int32, np.int64):
        assert medians_by_key(key.astype(kind), value, 4).tolist() == [4.0, pytest.approx(nan, nan_ok=True), 5.0, 4.0]
    far = np.where(key == 3, 70_000, key)  # more keys than 16 bits number
    assert medians_by_key(far, value, 70_001)[[0, 2, 70_000]].tolist() == [4.0, 5.0, 4.0]
    assert medians_by_key(key[:0], value[:0], 2).tolist() == pytest.approx([nan, nan], nan_ok=True)


def test_by_key_by_hand() -> None:
    """Key 0 has 7, 1, 5; key 2 has 4, -6; key 1 and key 3 have nothing."""
    key, value = np.array([2, 0, 0, 2, 0]), np.array([4, 7, 1, -6, 5])
    order, first = grouped(key, 4)
    assert order.tolist() == [1, 2, 4, 0, 3]
    assert first.tolist() == [0, 3, 3, 5, 5]
    assert largest_by_key(key, value, 4, least=5).tolist() == [7, 5, 5, 5]
    assert np.array_equal(medians_by_key(key, value.astype(float), 4), [5.0, nan, -1.0, nan], equal_nan=True)
    none = np.empty(0, np.int64)
    assert largest_by_key(none, none, 2, least=-1).tolist() == [-1, -1]
    assert np.isnan(medians_by_key(none, none.astype(float), 2)).all()


@pytest.mark.parametrize("keys", [1, 7, 300, 40_000])
def test_medians_of_many_keys(keys: int) -> None:
    random = np.random.default_rng(keys)
    key, value = random.integers(0, keys, 2000), random.integers(0, 50, 2000) / 7
    expected = [np.median(value[key == own]) for own in np.unique(key).tolist()]
    found = medians_by_key(key, value, keys)
    assert found[np.unique(key)].tolist() == expected
    assert np.isnan(np.delete(found, np.unique(key))).all()
