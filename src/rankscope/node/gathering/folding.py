"""Keep a long run's step log small: of every 100 old steps the longest stay as they are, the others become means.

What is wanted of steps that are hours old is their mean, the slow ones among them, and where those stand: a stall in
every 25th step is seen in folded steps as well as in exact ones. So steps stay in order, each entry says how many it
stands for, and the means of all steps are those of before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rankscope.records.running.step_log import STEP_LOG_COLUMNS, STEP_LOG_ENTRY

__all__ = ["BLOCK", "KEPT", "MOST_IN_ONE", "fold"]

BLOCK = 100
KEPT = 5
"""Of so many steps that are kept, at most one more piece each lies between them: 11 entries for 100 steps, 9 bytes a
step before compression."""
_COLUMNS = len(STEP_LOG_COLUMNS)
_SPAN, _FLAGS, _CALLS = _COLUMNS, _COLUMNS + 1, _COLUMNS + 2
MOST_IN_ONE = 0xFFFF
"""Steps for which one entry can stand."""

Entry = tuple[int, ...]


def fold(exact: bytes) -> bytes:
    """Return the entries that stand for these exact ones, in order."""
    entries = list(STEP_LOG_ENTRY.iter_unpack(exact))
    blocks = (entries[at : at + BLOCK] for at in range(0, len(entries), BLOCK))
    return b"".join(STEP_LOG_ENTRY.pack(*entry) for block in blocks for entry in _block(block))


def _block(block: list[Entry]) -> Iterator[Entry]:
    longest = sorted(range(len(block)), key=lambda at: block[at][0], reverse=True)[:KEPT]
    kept = set(longest)
    # Steps of which nothing is known (0), recorded ones and occasions are not mixed with others.
    kept |= {at for at, entry in enumerate(block) if entry[_SPAN] > 1}
    pieces = groupby(range(len(block)), key=lambda at: (at if at in kept else -1, block[at][0] > 0, block[at][_FLAGS]))
    for _, places in pieces:
        piece = [block[at] for at in places]
        yield piece[0] if len(piece) == 1 else _mean(piece)


def _mean(piece: list[Entry]) -> Entry:
    count = len(piece)
    columns = [round(sum(entry[column] for entry in piece) / count) for column in range(_COLUMNS)]
    calls = round(sum(entry[_CALLS] for entry in piece) / count)
    return (*columns, count, piece[0][_FLAGS], calls, 0, piece[-1][-1])
