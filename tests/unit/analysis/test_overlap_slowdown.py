"""Replays in which the durations of kernels follow their overlap with communication, on a hand-made graph."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.replay.builder import Builder
from rankscope.analysis.replay.collective_nodes import END, JOINED, START
from rankscope.analysis.replay.graph import Graph, Work
from rankscope.analysis.replay.longest_path import Changed
from rankscope.analysis.replay.overlap_slowdown import OverlapSlowdown

LAYERS, TRANSFER, ALONE = 40, 10.0, 100.0


class _Whole:
    """A replay of one step, the last call."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def gains_at(self, at: np.ndarray) -> np.ndarray:
        return np.array([(self.graph.recorded[self.graph.ends] - at[self.graph.ends]).max()])


def _times(alone: tuple[float, float], lost: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Start and duration of each kernel, and start and end of each call, shape (layers, 2), computed forwards.

    A rank begins call i + 1 together with kernel i, and kernel i + 1 when both are over. The call ends ``TRANSFER``
    after the last rank began it. A kernel that overlaps it for a time loses the share ``lost`` of that time.
    """
    begin, took, end = np.zeros((LAYERS, 2)), np.zeros((LAYERS, 2)), np.zeros((LAYERS, 2))
    free = np.array([1.0, 1.0])
    for layer in range(LAYERS):
        begin[layer] = free
        end[layer] = free.max() + TRANSFER
        beside = end[layer] - free
        work = np.array(alone)
        took[layer] = np.where(work > (1 - lost) * beside, work + lost * beside, work / (1 - lost))
        free = np.maximum(free + took[layer], end[layer])
    return begin, took, begin, end


def _graph(alone: tuple[float, float], lost: float) -> Graph:
    """The graph of this job as it would be recorded."""
    kernel, took, call, end = _times(alone, lost)
    builder = Builder()
    owner = np.array([0, 1])
    start = builder.nodes(kernel.ravel(), START).reshape(LAYERS, 2)
    builder.pin(start[0])
    asked = builder.nodes(call.ravel(), START).reshape(LAYERS, 2)
    joined = builder.nodes(call.max(axis=1), JOINED)
    ended = builder.nodes(end.ravel(), END).reshape(LAYERS, 2)
    for layer in range(LAYERS):
        builder.edges(asked[layer], start[layer], 0.0)
        builder.edges(joined[[layer, layer]], asked[layer], 0.0)
        builder.edges(ended[layer], joined[[layer, layer]], TRANSFER)
        if layer:
            builder.edges(start[layer], start[layer - 1], 0.0, took[layer - 1], Work.DEVICE, owner, layer)
            builder.edges(start[layer], ended[layer - 1], 0.0)
    return builder.finish(ended.ravel(), asked.ravel(), np.tile(owner, LAYERS))


@pytest.mark.parametrize("lost", [0.05, 0.25])
def test_the_gain_of_a_faster_device_is_that_of_the_job_without_its_slowness(lost: float) -> None:
    """GIVEN rank 1 takes 5 % longer, so that rank 0 waits beside all its work, WHEN it takes as long as rank 0 THEN the
    gain is the difference of the two jobs: 5 us a layer, as all that a rank that waits loses is hidden by its wait."""
    graph = _graph((ALONE, 1.05 * ALONE), lost)
    truth = _times((ALONE, 1.05 * ALONE), lost)[3][-1].max() - _times((ALONE, ALONE), lost)[3][-1].max()
    assert truth == pytest.approx(5.0 * (LAYERS - 1))
    slowed = OverlapSlowdown.of(graph, lost)
    mine = np.flatnonzero(graph.owner == 1).astype(np.int32)
    # its kernels overlap the calls' transfers: their part of the duration is not divided
    gain = slowed.gains(_Whole(graph), Changed(mine, graph.work[mine] / 1.05))[0]  # type: ignore[arg-type]
    assert gain == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("lost", [0.05, 0.25])
def test_with_the_recorded_work_nothing_is_gained(lost: float) -> None:
    graph = _graph((ALONE, 1.05 * ALONE), lost)
    whole = 105.0 * LAYERS
    same = Changed(np.empty(0, np.int32), np.empty(0))
    gain = OverlapSlowdown.of(graph, lost).gains(_Whole(graph), same)  # type: ignore[arg-type]
    assert abs(gain[0]) < 0.005 * whole
