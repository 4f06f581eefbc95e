"""The record of a rank's process, with its identity as far as it is known at the start. Standard library only."""

from __future__ import annotations

import os
import socket

from rankscope.records.rank import RankRecord, RankStatus

__all__ = ["process_record"]


def process_record(
    rank: int, world_size: int, local_rank: int | None, attempt: int, status: RankStatus, reason: str
) -> RankRecord:
    """Return the record of this process, with what is known when it starts.

    Args:
        rank: rank of this process.
        world_size: number of ranks of the job.
        local_rank: None if the launcher does not set it.
        attempt: number of earlier restarts of the job.
        status: status until the process reports another.
        reason: why the status is not ok, for the report.
    """
    return RankRecord(
        rank=rank, local_rank=-1 if local_rank is None else local_rank, world_size=world_size,
        host=socket.gethostname(), pid=os.getpid(), attempt=attempt, status=status, reason=reason,
    )  # fmt: skip
