"""Micro-batches of a pipeline's step, by the messages between neighbouring stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult

__all__ = ["micro_batches"]


def micro_batches(windows: Sequence[WindowResult]) -> int | None:
    """Return how many messages each stage sends to each neighbour in a step; None if they do not all send as many.

    With one message for each micro-batch, forward and back, these are the micro-batches. If every rank has several
    stages that alternate (interleaved), each micro-batch counts once for each of them.
    """
    counts = {count for window in windows if window.pipeline for view in window.views for count in _sent(view).values()}
    return counts.pop() if len(counts) == 1 else None


def _sent(view: RankView) -> dict[int, int]:
    """Return peer -> number of messages that the rank sends to it in most of its steps."""
    calls, steps = view.trace.collectives, view.trace.events.step
    by_step: dict[int, Counter[int]] = {}
    for event, pieces in zip(calls.event.tolist(), calls.pieces, strict=True):
        if (step := int(steps[event])) >= 0:
            for piece in pieces:
                if piece.sends and piece.peer >= 0:
                    by_step.setdefault(piece.peer, Counter())[step] += 1
    return {peer: Counter(each.values()).most_common(1)[0][0] for peer, each in by_step.items()}
