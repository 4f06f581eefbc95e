"""Changes of level are found at their positions, and none in noise, outliers or slow waves."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rankscope.errors import AnalysisError
from rankscope.statistics.changes import FEWEST, changes

NOISE = np.random.default_rng(7).normal(0, 1, 400)


def test_one_change_is_found_with_its_levels() -> None:
    series = [100.0, 101, 99, 100, 101, 99, 100, 100, 110, 111, 109, 110, 110, 111, 109, 110]
    (change,) = changes(series)
    assert (change.index, change.before, change.after) == (8, 100.0, 110.0)
    assert change.relative == pytest.approx(0.1)
    assert change.p_value < 0.01


def test_two_changes_in_order() -> None:
    series = np.repeat([100.0, 120.0, 90.0], 15) + NOISE[:45]
    assert [change.index for change in changes(series)] == [15, 30]


def test_what_is_not_finite_is_left_out_and_places_stay_those_of_the_series() -> None:
    series = np.repeat([100.0, 120.0], 10) + NOISE[:20]
    series[3] = np.nan
    assert [change.index for change in changes(series)] == [10]


@pytest.mark.parametrize("least", [0.03, 0.12])
def test_small_changes_are_not_told(least: float) -> None:
    series = np.repeat([100.0, 110.0], 15) + NOISE[:30] / 2
    assert len(changes(series, least=least)) == (least < 0.1)


@pytest.mark.parametrize(
    "series",
    [
        100 + NOISE[:60],
        100 + 4 * NOISE[:200],
        np.where(np.arange(60) % 13 == 5, 180, 100) + NOISE[:60],
        np.full(30, 7.0),
        np.zeros(30),
        100 + 4 * np.cumsum(NOISE[:60]) / 10,
        [100.0, 101, 150, 151, 152, 150, 151][: FEWEST - 1],
    ],
    ids=["noise", "more noise", "outliers", "constant", "nothing", "a slow walk", "short"],
)
def test_no_change_is_seen_where_there_is_none(series: list[float]) -> None:
    assert changes(series) == []


def test_the_same_series_gets_the_same_answer_and_its_unit_does_not_matter() -> None:
    series = np.repeat([100.0, 110.0], 20) + 3 * NOISE[:40]
    assert changes(series) == changes(series)
    assert [c.index for c in changes(series / 1e3)] == [c.index for c in changes(series)]


def test_a_long_series_is_averaged_and_places_are_those_of_the_series() -> None:
    series = np.concatenate((np.tile(100 + NOISE, 15), np.tile(110 + NOISE, 15)))
    (change,) = changes(series)
    assert abs(change.index - 6000) <= 6


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    with pytest.raises(AnalysisError, match=r"pip install 'rankscope\[history\]'"):
        changes([1.0] * 20)
