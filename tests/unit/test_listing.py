"""Counts and numbers of ranks as text."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rankscope.listing import counted, named_ranks, some_ranks


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([1, 0], "0, 1"),
        ([2, 0, 1, 1, 3, 7], "0-3, 7"),
        (range(1024), "0-1023"),
        (range(3, 1024, 8), "3 to 1019, every 8th"),
        (range(1, 42, 10), "1 to 41, every 10th"),
        # four at equal distances are as easily written one by one
        ([1, 3, 5, 7], "1, 3, 5, 7"),
        ([1, 3, 5, 7, 9], "1 to 9, every 2nd"),
        # eight ranges, then the number of ranks that are left
        ([0, 1, 2, *range(4, 22, 3), 30, 40, 41, 42], "0-2, 4, 7, 10, 13, 16, 19, 30 and 3 more"),
    ],
)
def test_ranks_as_text(ranks: Iterable[int], text: str) -> None:
    assert some_ranks(ranks) == text


def test_ranks_with_their_noun() -> None:
    assert (named_ranks([4]), named_ranks([4, 5]), named_ranks([1, 5, 9, 13], 3)) == (
        "rank 4",
        "ranks 4, 5",
        "ranks 1, 5, 9 and 1 more",
    )
    assert (counted(1, "run"), counted(3, "run")) == ("1 run", "3 runs")
