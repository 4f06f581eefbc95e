"""Micro-batches of a pipeline, by messages between its stages; the steps are made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from rankscope.analysis.evidence.micro_batches import micro_batches
from rankscope.trace.columns import Piece


def stage(*sent: tuple[int, int], steps: int = 3, lost: int = 0) -> Any:
    """Return a rank that sends ``(peer, messages)`` in each step and receives as many; some are lost in the first."""
    calls = [
        (step, Piece(sends, peer))
        for step in range(steps)
        for peer, count in sent
        for _ in range(count - (lost if step == 0 else 0))
        for sends in (True, False)
    ]
    outside = (-1, Piece(True, sent[0][0]))
    steps_of = np.array([step for step, _ in [outside, *calls]])
    collectives = SimpleNamespace(event=np.arange(len(steps_of)), pieces=[(piece,) for _, piece in [outside, *calls]])
    return SimpleNamespace(trace=SimpleNamespace(collectives=collectives, events=SimpleNamespace(step=steps_of)))


def window(*views: Any, pipeline: bool = True) -> Any:
    return SimpleNamespace(views=list(views), pipeline=pipeline)


def test_every_stage_sends_one_message_for_each_micro_batch() -> None:
    stages = [stage((1, 8)), stage((0, 8), (2, 8), lost=1), stage((1, 8))]
    assert micro_batches([window(*stages)]) == 8
    assert micro_batches([window(*stages), window(*stages)]) == 8


def test_where_stages_send_different_numbers_it_is_not_known() -> None:
    assert micro_batches([window(stage((1, 8)), stage((0, 16)))]) is None
    assert micro_batches([window(stage((1, 8)), stage((0, 8)), pipeline=False)]) is None
    assert micro_batches([]) is None
