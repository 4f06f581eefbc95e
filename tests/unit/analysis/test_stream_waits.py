"""Which work of other streams a kernel waits for: what the host's wait calls say, or what ended just before."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rankscope.analysis.replay.graph import Work
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.trace.files.load import load_traces

PERIOD, STEPS = 1000, 4
COLLECTIVE = {
    "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096, "Group size": 2, "dtype": "Float",
    "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]",
}  # fmt: skip


def events(step: int, *, waits: bool) -> list[dict]:
    """A step, us: kernels at 10 to 110, 112 to 122 and 217 to 317, calls at 112 to 212 and 320 to 370.

    The last kernel begins 5 us after the first call has ended, since the host is busy until 207 and launches it then.
    """
    at, found = step * PERIOD, []

    def add(category: str, name: str, begin: float, end: float, **more) -> None:
        found.append({"cat": category, "name": name, "tid": 1, "ts": at + begin, "dur": end - begin, **more})

    def launch(name: str, asked: float, begin: float, end: float, stream: int, **args) -> None:
        number = 10 * step + len(found)
        add("cuda_runtime", "cudaLaunchKernel", asked, asked + 4, args={"correlation": number})
        add("kernel", name, begin, end, tid=stream, args={"correlation": number, "stream": stream, "device": 0, **args})

    add("user_annotation", f"ProfilerStep#{step}", 0, PERIOD)
    launch("gemm", 1, 10, 110, 7)
    if waits:
        add("cuda_runtime", "cudaStreamWaitEvent", 15, 16)
    launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 112, 212, 20, **COLLECTIVE)
    launch("gemm", 25, 112, 122, 7)
    add("cpu_op", "aten::mul", 30, 206)
    launch("gemm", 207, 217, 317, 7)
    if waits:
        add("cuda_runtime", "cudaStreamWaitEvent", 225, 226)
    launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 230, 320, 370, 20, **COLLECTIVE)
    return [{"ph": "X", "pid": 1, **event} for event in found]


@pytest.mark.parametrize(
    ("waits", "step_us"),
    [
        # The kernels one behind the other, 12 where the host was late, the longest gap of a device; the second call is
        # 3 behind, and the next step 2.5 behind it, the usual gap between streams (2 and 3): a wait lies between.
        (True, 100 + 2 + 10 + 12 + 100 + 3 + 50 + 2.5),
        # the last kernel behind the first call, which takes 100 and begins 2 behind the first kernel
        (False, 100 + 2 + 100 + 2.5 + 100 + 12),
    ],
)
def test_what_ended_just_before_was_waited_for_only_where_no_waits_are_recorded(tmp_path, waits, step_us) -> None:
    """The length of a step without host work."""
    for rank in range(2):
        every = [event for step in range(STEPS) for event in events(step, waits=waits)]
        meta = {"rank": rank, "world_size": 2, "backend": "nccl"}
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps({"distributedInfo": meta, "traceEvents": every}))
    replay = analyse_window(load_traces([tmp_path], cache=False).traces).replay
    assert replay is not None
    without_host = np.where(replay.graph.label == Work.HOST, 0.0, replay.graph.work)
    assert np.diff(replay.marks(without_host)) / 1000 == pytest.approx(step_us)
