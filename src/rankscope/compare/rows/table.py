"""All kinds of rows. To add one: a file beside the others, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.compare.rows.communication import communication_rows
from rankscope.compare.rows.counts import count_rows
from rankscope.compare.rows.memory import memory_rows
from rankscope.compare.rows.times import time_rows
from rankscope.compare.rows.work import work_rows
from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffRow

__all__ = ["ROWS"]

ROWS: tuple[Callable[[Side, Side], list[DiffRow]], ...] = (
    time_rows,
    work_rows,
    communication_rows,
    count_rows,
    memory_rows,
)
