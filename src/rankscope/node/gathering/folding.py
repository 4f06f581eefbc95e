"""Bound the size of a long run's step log: of every 100 old steps the longest are kept, and the others become means.

Of steps that are hours old only the mean, the slow ones, and their positions are needed: a delay in every 25th step is
visible in folded steps too. So the order of steps is kept, each entry states how many steps it stands for, and the mean
over all steps is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rankscope.records.running.step_log import STEP_LOG_COLUMNS, STEP_LOG_ENTRY

__all__ = ["BLOCK", "KEPT", "MOST_IN_ONE", "fold"]

BLOCK = 100
KEPT = 5
"""With this many steps kept, there is at most one more piece between each: 11 entries for 100 steps, 9 bytes a step
before compression."""
_COLUMNS = len(STEP_LOG_COLUMNS)
_ISSUED = STEP_LOG_COLUMNS.index("issued")
_SPAN, _FLAGS, _CALLS = _COLUMNS, _COLUMNS + 1, _COLUMNS + 2
MOST_IN_ONE = 0xFFFF
"""Largest number of steps that one entry can stand for."""

Entry = tuple[int, ...]


def fold(exact: bytes) -> bytes:
    """Return the entries that replace these exact ones, in order."""
    entries = list(STEP_LOG_ENTRY.iter_unpack(exact))
    blocks = (entries[at : at + BLOCK] for at in range(0, len(entries), BLOCK))
    return b"".join(STEP_LOG_ENTRY.pack(*entry) for block in blocks for entry in _block(block))


def _block(block: list[Entry]) -> Iterator[Entry]:
    longest = sorted(range(len(block)), key=lambda at: block[at][0], reverse=True)[:KEPT]
    kept = set(longest)
    # Steps without a time (0), recorded steps, and evaluations and checkpoints are not mixed with others.
    kept |= {at for at, entry in enumerate(block) if entry[_SPAN] > 1}
    # Neither are steps whose calls are known with those whose calls are not.
    pieces = groupby(
        range(len(block)),
        key=lambda at: (at if at in kept else -1, block[at][0] > 0, block[at][_ISSUED] > 0, block[at][_FLAGS]),
    )
    for _, places in pieces:
        piece = [block[at] for at in places]
        yield piece[0] if len(piece) == 1 else _mean(piece)


def _mean(piece: list[Entry]) -> Entry:
    count = len(piece)
    columns = [round(sum(entry[column] for entry in piece) / count) for column in range(_COLUMNS)]
    calls, device = (round(sum(entry[at] for entry in piece) / count) for at in (_CALLS, _CALLS + 1))
    return (*columns, count, piece[0][_FLAGS], calls, device, piece[-1][-1])
