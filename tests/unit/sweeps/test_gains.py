"""Differences between settings; expected numbers are calculated by hand or by another formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rankscope.statistics.chance import discoveries, student_quantile
from rankscope.sweeps.gains import gains


def test_two_settings_are_a_paired_test() -> None:
    """Differences of the pairs, their mean, and Student's interval with n - 1 degrees of freedom."""
    a, b = [100.0, 110.0, 105.0, 120.0], [90.0, 101.0, 94.0, 109.0]
    steps = {(s, r): own[r - 1] for s, own in ((1, a), (2, b)) for r in range(1, 5)}
    found, known = gains(steps, 1, 0.05)
    pairs = np.log(b) - np.log(a)
    assert known
    assert found[2].change == pytest.approx(pairs.mean())
    assert found[2].change_noise == pytest.approx(
        student_quantile(0.005, 3) * pairs.std(ddof=1) / math.sqrt(4), rel=1e-4
    )
    assert found[2].told
    assert found[1].change is None


def test_what_all_settings_of_a_round_have_in_common_is_not_theirs() -> None:
    """Rounds that are 30 % apart, settings that are not: nothing is told; without rounds the noise would be 30 %."""
    noise = {(1, 1): 1.0, (2, 1): 1.01, (3, 1): 1.0, (1, 2): 1.01, (2, 2): 1.0, (3, 2): 1.0, (1, 3): 1.0, (2, 3): 1.0}
    steps = {(s, r): 50.0 * 1.3**r * factor for (s, r), factor in (noise | {(3, 3): 1.01}).items()}
    found, _ = gains(steps, 1, 0.05)
    assert not any(own.told for own in found.values())
    assert all(own.change_noise < 0.05 for own in found.values())


def test_runs_that_are_missing_are_left_out() -> None:
    """Setting 2 has no run in the round that was slow for all: its mean is lower, its gain is not."""
    steps = {(1, 1): 100.0, (2, 1): 80.0, (1, 2): 100.0, (2, 2): 80.4, (1, 3): 200.0, (1, 4): 100.4, (2, 4): 80.0}
    found, known = gains(steps, 1, 0.05)
    assert known
    assert found[2].change == pytest.approx(math.log(0.8), abs=0.01)
    assert found[2].told


def test_too_few_repeats_take_what_is_usual() -> None:
    found, known = gains({(1, 1): 100.0, (2, 1): 96.0, (3, 1): 90.0}, 1, 0.05)
    assert not known
    assert not found[2].told
    assert found[3].told
    assert found[3].change_noise == pytest.approx(math.log(1.05))


def test_settings_that_share_no_round_are_compared_without_rounds() -> None:
    found, known = gains({(1, 1): 100.0, (1, 2): 101.0, (2, 3): 50.0, (2, 4): 50.5}, 1, 0.05)
    assert known
    assert found[2].told
    assert found[2].change == pytest.approx(math.log(0.5), abs=0.001)


def test_without_the_first_setting_nothing_is_compared() -> None:
    found, _ = gains({(2, 1): 100.0, (3, 1): 90.0}, 1, 0.05)
    assert [own.change for own in found.values()] == [None, None]
    assert gains({}, 1, 0.05) == ({}, False)


def test_equal_settings_are_distinguished_by_chance_only() -> None:
    """Ten settings that are the same, three runs each: in a thousand such sweeps 1 % at most tell any of them."""
    random = np.random.default_rng(0)
    wrong = 0
    for _ in range(300):
        rounds = random.normal(0, 0.1, 4)
        steps = {
            (s, r): float(50 * np.exp(rounds[r] + random.normal(0, 0.02))) for s in range(1, 11) for r in range(1, 4)
        }
        wrong += any(own.told for own in gains(steps, 1, 0.05)[0].values())
    assert wrong <= 10  # 1 % of 300 are 3; more than 10 happen once in 3,000 times


def test_discoveries_by_hand() -> None:
    """Benjamini and Hochberg: bounds of 0.05 / 4 are 0.0125, 0.025, 0.0375, 0.05; the third is the last within its."""
    assert discoveries([0.030, 0.001, 0.9, 0.026], 0.05) == [True, True, False, True]
    assert discoveries([0.02, 0.04, 0.2], 0.05) == [False, False, False]
    assert discoveries([], 0.05) == []
