"""Launch queues of hand-made traces, and of jobs whose limit is known."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.tables.launch_queue import launch_queues
from rankscope.analysis.windows.analyse import analyse_window

from .worlds import US, Item, Mesh, simulate


def _queue(traces):
    return launch_queues([analyse_window(traces)])


def test_by_hand(make_trace) -> None:
    """A step of 1,000 us; three kernels asked for at 80, 180 and 280 us begin at 100, 400 and 500 and take 100 each.

    Outstanding is 1 from 80 to 100 and from 180 to 280, 2 from 280 to 400, 1 from 400 to 500: none for 660 us. The
    device runs from 100 to 200 and from 400 to 600; nothing runs and nothing is asked for from 0 to 80 and from 600 on
    (between 200 and 400 something always is).
    """
    rows = [("gemm", 100, 100), ("gemm", 400, 100), ("gemm", 500, 100)]
    trace = make_trace(0, rows, ranks=(0,), steps=((0, 1000),))
    calls = np.flatnonzero(trace.events.name == trace.strings.index("cudaLaunchKernel"))
    trace.events.start[calls] = np.array([80, 180, 280]) * US
    [row] = _queue([trace])
    assert (row.rank, row.median_outstanding, row.max_outstanding) == (0, 0.0, 2)
    assert row.median_delay_us == pytest.approx(220.0)
    assert row.starved_pct == pytest.approx(48.0)


def test_a_device_that_outlasts_its_host_has_a_queue_and_is_not_starved() -> None:
    program = [*[Item("work", host=20 * US, device=400 * US)] * 30, Item("sync")]
    for row in _queue(simulate(program, Mesh(dp=2))):
        assert row.median_outstanding > 5
        assert row.max_outstanding <= 30
        assert row.starved_pct < 2.0


def test_a_device_that_is_quicker_than_its_host_is_starved() -> None:
    """Each launch takes 200 us of host and its call, each kernel 20: nine tenths of the time nothing is there to do."""
    program = [*[Item("work", host=200 * US, device=20 * US)] * 30, Item("sync")]
    for row in _queue(simulate(program, Mesh(dp=2))):
        assert (row.median_outstanding, row.max_outstanding) == (0.0, 1)
        assert row.median_delay_us == pytest.approx(6.0)
        assert 80.0 < row.starved_pct < 90.0


@pytest.mark.data
def test_real_traces(recorded) -> None:
    """GPU-bound: work waits at nearly all times. Rank 1 sits in its loader for 60 of 103 ms: it starves, and rank 0
    waits for it in a collective, which is work. A CPU has no queue."""
    assert all(row.median_outstanding > 20 and row.starved_pct < 1 for row in _queue(recorded("ddp_gpu_bound").traces))
    waiting, stalled = _queue(recorded("ddp_dataloader_stall").traces)
    assert stalled.starved_pct > 100 * 60 / 103 > 10 > waiting.starved_pct
    assert _queue(recorded("gloo_ddp_none").traces) == []
