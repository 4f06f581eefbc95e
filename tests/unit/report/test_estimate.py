"""A number with its uncertainty."""

from __future__ import annotations

import pickle

import pytest

import rankscope


def test_it_calculates_compares_and_reads_like_a_number() -> None:
    saves = rankscope.Estimate(38.4, 3.7)
    assert (str(saves), f"{saves:.1f}", float(saves)) == ("38 ± 4 ms", "38.4", 38.4)
    assert (saves.low, saves.high) == (pytest.approx(34.7), pytest.approx(42.1))
    assert 38 < saves < 39.0
    assert saves == 38.4
    assert saves > rankscope.Estimate(5.0)
    assert max([rankscope.Estimate(1.0), saves]) is saves
    assert len({saves, 38.4}) == 1
    assert pickle.loads(pickle.dumps(saves)) == saves


def test_without_an_error_it_has_none() -> None:
    plain = rankscope.Estimate(12.0)
    assert "±" not in str(plain)
    assert (plain.low, plain.high) == (12.0, 12.0)


def test_units_are_not_mixed() -> None:
    with pytest.raises(TypeError, match="ms and s cannot be compared"):
        rankscope.Estimate(1.0) < rankscope.Estimate(1.0, unit="s")  # noqa: B015
