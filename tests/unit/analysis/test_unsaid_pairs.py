"""Sends and receives without recorded peers: paired by the ends of their kernels, or not at all."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rankscope.analysis.matching.unsaid_pairs import pair_by_ends

MESSAGES = [(0, 1), (1, 2), (1, 0), (0, 1), (2, 1), (1, 2), (1, 0), (2, 1), (0, 1), (1, 2)]
"""One step of a pipeline of three stages: who sends to whom, in order of time."""
CLOCKS = (0, 7_000_000, -3_000_000)
"""By how much each rank's clock is ahead, in ns."""
STEPS = 6


class Job:
    """A job of three ranks, as far as the pairing looks at it, and its true pairs."""

    def __init__(self, *, steps=STEPS, noise=0.03, jitter=200.0, buffered=0.0, one_stream=False) -> None:
        """``buffered``: up to how much earlier a message ends at its sender, in ns."""
        rng = np.random.default_rng(1)
        calls: list[list[tuple[float, int, int]]] = [[], [], []]
        self.truth: dict[tuple[int, int], set[tuple[int, int]]] = {(0, 1): set(), (1, 2): set()}
        now = 0.0
        for step in range(steps):
            for pair in MESSAGES:
                now += 900_000 * (1 + noise * rng.standard_normal())
                low, high = sorted(pair)
                self.truth[low, high].add((len(calls[low]), len(calls[high])))
                for rank in pair:
                    early = buffered * rng.random() if rank == pair[0] else 0.0
                    end = now * (1 + 2e-6 * rank) + CLOCKS[rank] + jitter * rng.random() - early
                    calls[rank].append((end, 7 if one_stream else 10 * pair[0] + pair[1], step))
        self.views = [_view(rank, own, steps) for rank, own in enumerate(calls)]

    def found(self, ranks=(0, 1, 2)) -> dict[tuple[int, int], set[tuple[int, int]]]:
        members = {rank: np.arange(len(self.views[rank].trace.collectives.event)) for rank in ranks}
        paired = pair_by_ends(self.views, members)
        return {columns: {tuple(row) for row in rows.tolist()} for columns, rows in paired.items()}


def _view(rank: int, calls: list[tuple[float, int, int]], steps: int) -> SimpleNamespace:
    end, stream, step = (np.array(column).astype(np.int64) for column in zip(*calls, strict=True))
    length = np.full(len(end), 60_000)
    events = SimpleNamespace(start=end - length, duration=length, stream=stream, step=step, launch=length * 0 - 1)
    trace = SimpleNamespace(
        events=events,
        steps=SimpleNamespace(number=np.arange(steps)),
        collectives=SimpleNamespace(event=np.arange(len(end))),
    )
    return SimpleNamespace(rank=rank, trace=trace)


@pytest.mark.parametrize("one_stream", [False, True])
def test_kernels_that_end_together_in_every_step_are_one_message(one_stream: bool) -> None:
    """Clocks are milliseconds apart and drift; on a stream for each pair and direction, and all on one stream."""
    job = Job(one_stream=one_stream)
    assert job.found() == job.truth
    assert sum(map(len, job.truth.values())) == STEPS * len(MESSAGES)


@pytest.mark.parametrize(
    ("made", "ranks"),
    [
        ({"noise": 0.0, "one_stream": True}, (0, 1, 2)),  # whatever is paired ends together: work takes the same time
        ({"buffered": 500_000.0}, (0, 1, 2)),  # the sender does not wait for the receiver
        ({"steps": 3}, (0, 1, 2)),
        ({}, (0, 2)),  # the rank that both exchange messages with has no trace
        ({}, (1, 2)),  # some of the kernels of rank 1 have their partner on a rank without trace
    ],
    ids=["no scatter", "buffered", "few steps", "middle rank missing", "end missing"],
)
def test_nothing_is_paired_where_more_than_one_way_is_possible_or_none(made: dict, ranks: tuple[int, ...]) -> None:
    assert Job(**made).found(ranks) == {}
