"""The record of a rank's process: who it is, as torchrun's environment says. Standard library only."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from rankscope.records.rank import RankRecord, RankStatus

__all__ = ["process_record"]


def process_record(environ: Mapping[str, str], status: RankStatus, reason: str) -> RankRecord:
    """Return the record of this process, with what is known when it starts.

    Args:
        environ: as torchrun made it. It has a ``RANK``.
        status: of the record, until the process says more.
        reason: why the status is not ok, for the report.

    Raises:
        KeyError: there is no ``RANK``.
        ValueError: a variable is not a number.
    """
    return RankRecord(
        rank=int(environ["RANK"]),
        local_rank=int(environ.get("LOCAL_RANK", "-1")),
        world_size=int(environ.get("WORLD_SIZE", "-1")),
        host=socket.gethostname(),
        pid=os.getpid(),
        attempt=int(environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        status=status,
        reason=reason,
    )
