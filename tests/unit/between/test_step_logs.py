"""Step logs of all versions, exact and folded."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.between.step_logs import parse
from rankscope.errors import ForeignFileError
from rankscope.node.gathering.folding import fold
from rankscope.records.running.step_log import (
    CHECKPOINT,
    RECORDED,
    STEP_LOG_COLUMNS,
    STEP_LOG_ENTRY,
    STEP_LOG_ENTRY_V1,
    STEP_LOG_HEADER,
    STEP_LOG_MAGIC,
)

HEADER = STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, 2, STEP_LOG_ENTRY.size, 0)


def entry(step_us: int, *, before: int = 0, span: int = 1, flags: int = 0) -> bytes:
    columns = dict.fromkeys(STEP_LOG_COLUMNS, 0) | {"step": step_us, "before": before}
    return STEP_LOG_ENTRY.pack(*columns.values(), span, flags, 0, 0, 0)


def test_a_log_of_version_1_is_read():
    raw = STEP_LOG_ENTRY_V1.pack(0, 0, 0, 0) + STEP_LOG_ENTRY_V1.pack(20_000, 1_500, 0, 1)
    log = parse(raw, "x")
    assert (log.steps, log.has_parts) == (2, False)
    assert log.column("step").tolist() == [0, 20]
    assert log.column("input").tolist() == [0, 1.5]
    assert log.column("before").tolist() == [0, 0]
    assert log.flags().tolist() == [0, RECORDED]


def test_a_log_of_version_2_is_read_step_by_step():
    log = parse(HEADER + entry(0, span=2) + entry(20_000, before=7_000) + entry(30_000, flags=CHECKPOINT), "x")
    assert (log.steps, log.has_parts) == (4, True)
    assert log.column("step").tolist() == [0, 0, 20, 30]
    assert log.column("before").tolist() == [0, 0, 7, 0]
    assert log.flags().tolist() == [0, 0, 0, CHECKPOINT]
    assert log.is_exact().tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "0 bytes are no whole number of steps"),
        (bytes(17), "17 bytes"),
        (HEADER, "no whole number"),
        (HEADER + bytes(79), "no whole number"),
        (HEADER[:9], "9 bytes are no step log"),
        (STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, 3, 90, 0) + bytes(90), "version 3; this rankscope knows 1 and 2"),
        (HEADER + entry(1, span=0xFFFF) * 300, "tells of 19660500 steps"),
    ],
)
def test_what_is_no_step_log_is_refused(raw, said):
    with pytest.raises(ForeignFileError, match=said):
        parse(raw, "x")


def test_folding_keeps_the_longest_steps_in_their_places_and_the_mean_of_all():
    rng = np.random.default_rng(1)
    steps = rng.integers(19_000, 21_000, 1000)
    steps[24::25] += 40_000  # four in a hundred
    exact = b"".join(entry(int(us), before=int(us) - 10_000) for us in steps)
    log = parse(HEADER + fold(exact), "x")
    assert log.steps == 1000
    assert len(log.entries) <= 110  # 11 for each hundred
    assert np.flatnonzero(log.column("step") > 50).tolist() == list(range(24, 1000, 25))
    assert log.column("step")[24::25].tolist() == (steps[24::25] / 1e3).tolist(), "they are exact"
    assert log.column("step").mean() == pytest.approx(steps.mean() / 1e3, rel=1e-4)
    assert log.column("before").mean() == pytest.approx(steps.mean() / 1e3 - 10, rel=1e-4)


def test_folding_mixes_nothing_with_recorded_steps_nor_with_lost_ones():
    exact = entry(0, span=70) + entry(0) * 2 + entry(10_000) * 10 + entry(90_000, flags=RECORDED) * 10 + entry(10_000)
    log = parse(HEADER + fold(exact), "x")
    assert log.steps == 70 + 2 + 10 + 10 + 1
    assert log.column("step").tolist() == [0] * 72 + [10] * 10 + [90] * 10 + [10]
    assert np.flatnonzero(log.flags()).tolist() == list(range(82, 92))
