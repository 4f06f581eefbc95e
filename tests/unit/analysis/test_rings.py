"""Point-to-point calls between equal ranks are not taken for a pipeline."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.matching.collectives import match
from rankscope.analysis.matching.rings import pipeline_channels
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.windows.analyse import analyse_window

from .worlds import Mesh, pipeline, simulate

US = 1000


def ring(make_trace, size: int, *, steps: int = 3, late: int | None = None, alternating: bool = False):
    """Each rank sends to the next and receives from the one before, both at once, beside its own work; then reduces."""
    traces = []
    for rank in range(size):
        rows, kinds, peers = [], [], []
        for step in range(steps):
            at = 5000 * step + 1000
            both = [("send", (rank + 1) % size), ("recv", (rank - 1) % size)]
            for kind, peer in reversed(both) if alternating and rank % 2 else both:
                rows.append(("ncclDevKernel_SendRecv", at + 10 * len(rows) % 20, 300))
                kinds.append(kind)
                peers.append(peer)
            work = 1800 if rank == late else 1000
            rows += [("gemm", at + 400, work), ("ncclDevKernel_AllReduce", at + 400 + work, 2600 - work)]
            kinds.append("allreduce")
            peers.append(-1)
        steps_at = [(5000 * step, 5000) for step in range(steps)]
        trace = make_trace(rank, rows, ranks=tuple(range(size)), steps=steps_at)
        trace.collectives.kind = kinds
        trace.collectives.peer = np.array(peers, np.int32)
        traces.append(trace)
    return traces


def staged(traces) -> list[bool]:
    views = [make_view(t, t.rank) for t in traces]
    matched = match(views)
    assert matched.matched == matched.total
    found = pipeline_channels(views, matched)
    return [bool(s) for s, c in zip(found, matched.channels, strict=True) if c.point_to_point]


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_a_ring_is_no_pipeline(make_trace, size) -> None:
    assert set(staged(ring(make_trace, size))) == {False}


def test_a_ring_in_which_every_other_rank_receives_first(make_trace) -> None:
    assert set(staged(ring(make_trace, 4, alternating=True))) == {False}


@pytest.mark.parametrize("mesh", [Mesh(pp=2, dp=2), Mesh(pp=4)])
def test_stages_are_a_pipeline(mesh) -> None:
    assert set(staged(simulate(pipeline(mesh.pp), mesh))) == {True}


def test_the_late_rank_of_a_ring_is_judged(make_trace) -> None:
    """Its work takes 0.8 ms longer in each of three steps of 5 ms; its peers are all the others."""
    result = analyse_window(ring(make_trace, 4, late=2))
    assert not result.pipeline
    assert not result.staged
    assert result.plan.peers[2] == [0, 1, 2, 3]
    assert result.lateness[2].excess == pytest.approx(3 * 800 * US, rel=0.05)
