"""CPU time by step and part, from counters that were not read at every bound; worked out by hand."""

from __future__ import annotations

from rankscope.agent.steps.counts import Counts, shared


def test_shares_fill_the_first_rooms_before_the_next() -> None:
    assert shared(6, [4, 8], [20, 20]) == [2, 4]
    # 12 fill the first rooms; of the other 7, rooms of 16 and 12 get 4 and 3
    assert shared(19, [4, 8], [20, 20]) == [8, 11]
    assert shared(100, [4, 8], [20, 20]) == [20, 20], "more than there is room for belongs to nobody"
    assert shared(0, [4, 8]) == [0, 0]
    assert shared(5, [0, 0]) == [0, 0]


def step(counts: Counts, number: int, begin: int, *reads: tuple[int, int] | None, backward: int = 10) -> int:
    """A step: 8 ns until its backward, the backward, and 2 behind it. Reads: at begin and end of the backward."""
    first, second = begin + 8, begin + 8 + backward
    marks = [("forward", begin + 1, None), ("backward", first, reads[0]), ("backward_ended", second, reads[1])]
    counts.step(number, marks, second + 2, reads[2] if len(reads) > 2 else None)
    return second + 2


def test_what_is_read_at_both_ends_of_a_part_is_exact() -> None:
    counts = Counts(0)
    at = step(counts, 0, 0, (5, 0), (12, 1))
    step(counts, 1, at, (20, 3), (29, 3))
    assert counts.take(0) == (7, 1, 7, 1), "nobody read where the first step began"
    # from the end of one backward to the next: 8 run and 2 waited; then 9 in the backward
    assert counts.take(1) == (17, 2, 9, 0)
    assert counts.take(1) == (0, 0, 0, 0)


def three_of_ten(counts: Counts) -> int:
    """Steps that are read: 10 run outside of the backward, 6 of 10 within it."""
    at = 0
    for number in range(3):
        at = step(counts, number, at, (16 * number + 8, 0), (16 * number + 14, 0))
    return at


def test_a_backward_that_was_not_read_takes_what_it_usually_does() -> None:
    counts = Counts(0)
    at = three_of_ten(counts)
    # three that are not; the backward of the second takes 10 longer, and 7 more run in all
    at = step(counts, 3, at, None, None)
    at = step(counts, 4, at, None, None, backward=20)
    at = step(counts, 5, at, None, (46 + 3 * 16, 0))
    assert [counts.take(number) for number in (3, 4, 5)] == [(16, 0, 6, 0)] * 3


def test_what_ran_or_waited_more_goes_to_the_rest_that_was_longer() -> None:
    counts = Counts(0)
    at = three_of_ten(counts)
    at = step(counts, 3, at, None, None)
    # 9 more before the backward of the next: 4 run, and 5 waited
    at = step(counts, 4, at + 9, None, None, backward=20)
    step(counts, 5, at, None, (46 + 3 * 16 + 4, 5))
    assert [counts.take(number) for number in (3, 4, 5)] == [(16, 0, 6, 0), (20, 5, 6, 0), (16, 0, 6, 0)]
