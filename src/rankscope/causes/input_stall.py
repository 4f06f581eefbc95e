"""Cause: the training thread waits in the data loader."""

from __future__ import annotations

from rankscope.causes.base import Cause, HostExample, HostTime, Spans

__all__ = ["CAUSE"]


def _host_time(host: HostTime) -> Spans:
    return host.loading()


CAUSE = Cause(
    name="input_stall",
    phrase="it waits for input",
    noun="waiting for input",
    advice=(
        "Raise num_workers and prefetch_factor of the DataLoader, with persistent_workers=True.",
        "Look at the shard, disk and decoding there: the other ranks get their batches in time.",
    ),
    check="less than 1 ms a step in the data loader",
    first_try="more data loader workers; this rank's shard, disk and decoding",
    needs=("user_annotation",),
    planted_by="demo: input_stall",
    host_time=_host_time,
    behind=("cpu_throttled",),
    examples=(
        HostExample(
            (
                ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 30),
                ("cpu_op", "aten::mm", 40, 50),
            ),
            claims_ms=30,
        ),
        HostExample((("user_annotation", "my own loading", 5, 30), ("cpu_op", "aten::mm", 40, 50)), claims_ms=0),
    ),
)
