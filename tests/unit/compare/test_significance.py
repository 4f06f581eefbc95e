"""Significance among many rows, and of one kernel compared with all others; numbers by hand."""

from __future__ import annotations

import math

import pytest

from rankscope.compare.rows.device_speed import device_speed, scatter_of
from rankscope.compare.rows.uses import Use
from rankscope.compare.sides.noise import between_chance
from rankscope.compare.significance import keep_significant
from rankscope.records.diff import DiffRow
from rankscope.statistics.chance import simes


def row(chance: float | None, ms: float = 1.0, *, told: bool = True) -> DiffRow:
    return DiffRow(kind="kernel", name="k", unit="ms", before=ms, after=ms, change=0.1, chance=chance, told=told)


def test_of_many_rows_fewer_are_significant() -> None:
    """Five rows at 1 %: bounds 0.2, 0.4, 0.6, 0.8 and 1 %. The third is above its own, 0.6 %, but the fourth is not
    above 0.8 %, so that the first four are found; the last is not."""
    rows = [row(0.001), row(0.003), row(0.0065), row(0.0079), row(0.02)]
    keep_significant(rows, step_ms=100.0)
    assert [own.told for own in rows] == [True, True, True, True, False]
    alone = [row(0.003), row(0.3), row(0.5), row(0.7)]  # its bound is 0.25 %
    keep_significant(alone, step_ms=100.0)
    assert not any(own.told for own in alone)


def test_small_rows_hide_no_large_one_and_counts_are_not_judged() -> None:
    """0.5 % of a step of 100 ms are 0.5 ms. A hundred smaller rows would put the bound of the large one at 0.01 %."""
    large, counted, within = row(0.004), row(None), row(0.0, told=False)
    rows = [large, within, counted, *(row(0.5, ms=0.4) for _ in range(100))]
    keep_significant(rows, step_ms=100.0)
    assert (large.told, counted.told, within.told) == (True, True, False)
    assert not any(own.told for own in rows[3:])


def test_places_of_one_question() -> None:
    assert simes([0.5, 0.001, 0.9, 0.8]) == pytest.approx(0.004)  # one of four
    assert simes([0.002, 0.002]) == pytest.approx(0.002)  # all a little
    assert simes([]) == 1.0


def test_bounds_are_so_many_deviations() -> None:
    assert between_chance(3.0, 3.0) == pytest.approx(0.0027, abs=1e-5)  # of the normal distribution beyond 3
    assert (between_chance(0.0, 0.0), between_chance(1.0, 0.0)) == (1.0, 0.0)


def test_a_kernel_is_judged_beside_all_others() -> None:
    """In the second step of either run the device goes slower by a tenth. One kernel feels that doubly and is 5 %
    longer in the later run: all its scatter is the pace's."""
    shares = {"before": (0.0, 0.1), "after": (0.0, 0.1)}

    def uses(run: str) -> dict[tuple[str, str, str, str], Use]:
        found = {}
        for number in range(6):
            slope, longer = (2.0, 0.05 * (run == "after")) if number == 0 else (1.0, 0.0)
            us = [100.0 * math.exp(slope * speed + longer) for speed in shares[run]]
            found[str(number), "", "", ""] = Use(1.0, 1.0, 1.0, [0, 1], us, set())
        return found

    before, after = uses("before"), uses("after")
    speed = device_speed(before, after)
    assert speed.change == pytest.approx(0.0, abs=1e-12)
    assert [side[1] - side[0] for side in speed.steps] == pytest.approx([0.1, 0.1])
    key = ("0", "", "", "")
    scatter = scatter_of([{0: before[key]}, {0: after[key]}], {0: speed})
    # squares of the pace: 2 runs x 2 x 0.05^2 = 0.01; a prior of 2 x 0.001^2 at slope 1
    assert scatter.slope == pytest.approx((0.02 + 2e-6) / (0.01 + 2e-6))
    assert scatter.variance < 1e-6
    assert scatter.freedom == 1


def test_few_kinds_have_no_pace() -> None:
    uses = {(str(n), "", "", ""): Use(1.0, 1.0, 1.0, [0, 1], [100.0, 110.0], set()) for n in range(4)}
    assert device_speed(uses, uses).steps == ({}, {})


def test_kernels_that_mostly_overlap_communication_have_no_length() -> None:
    assert Use(10.0, 9.0, 1.0, [0], [100.0], set()).usual_us == pytest.approx(100.0)
    assert Use(10.0, 8.0, 1.0, [0], [100.0], set()).usual_us is None
