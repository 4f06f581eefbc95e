"""Step time of a host that waits for its device at intervals. Expected times are counted by hand."""

from __future__ import annotations

import random

import pytest

from rankscope.statistics.step_time import StepTimeEstimate, sync_interval, usual_step_ms

LOGS_EACH_TENTH = [1.0] * 9 + [191.0]  # 200 ms: 20 a step
CHECKPOINT = [20.0] * 70 + [5000.0]


@pytest.mark.parametrize(
    ("steps", "length", "took"),
    [
        ([], 1, 0.0),
        ([20.0, 21.0, 22.0], 1, 21.0),
        (LOGS_EACH_TENTH * 4, 10, 20.0),
        (LOGS_EACH_TENTH * 3, 1, 1.0),  # three waits are no rhythm yet
        (CHECKPOINT * 3, 1, 20.0),
        ([0.1, 9.9] * 5, 2, 5.0),
        ([0.1, 9.9] * 5 + [0.1], 2, 5.0),
        ([20.0] * 40 + [40.0] * 30, 1, 20.0),  # slower from one step on, with no rhythm
    ],
)
def test_a_beat_and_what_a_step_takes_in_it(steps, length, took):
    assert sync_interval(steps) == length
    assert usual_step_ms(steps) == pytest.approx(took)


def test_a_beat_is_heard_through_jitter_and_a_pause():
    chance = random.Random(1)
    steps = [chance.gauss(1.0, 0.1) * took for took in LOGS_EACH_TENTH * 12]
    steps[44] = 3000.0
    assert sync_interval(steps) == 10
    assert usual_step_ms(steps) == pytest.approx(20.0, rel=0.1)


def slownesses(step_time, steps):
    return [slowness for slowness in map(step_time.add, steps) if slowness]


def test_a_beat_is_heard_on_a_busy_machine():
    # GIVEN steps of 2 ms and 50 in each fifth, of which every third that is not the fifth takes 3 to 9 ms instead
    steps = [50.0 if number % 5 == 4 else 2.0 for number in range(60)]
    for number in range(0, 60, 3):
        if number % 5 != 4:
            steps[number] = 3.0 + number % 7
    assert sync_interval(steps) == 5


def test_a_slow_step_is_so_many_usual_ones():
    step_time = StepTimeEstimate()
    assert slownesses(step_time, [900.0, 50.0] + [20.0] * 62) == []  # compiling, say
    assert slownesses(step_time, [60.0, 20.0]) == pytest.approx([3.0, 1.0])


def test_a_host_that_waits_each_tenth_step_is_not_slow_in_it():
    step_time = StepTimeEstimate()
    for took in LOGS_EACH_TENTH * 8:
        step_time.add(took)
    assert (step_time.sync_interval, step_time.usual_ms) == (10, pytest.approx(20.0))
    assert slownesses(step_time, LOGS_EACH_TENTH * 3) == pytest.approx([1.0] * 3)
    # one of these ten steps takes 60 ms on the device, 40 more than usual: its host waits so much longer
    assert slownesses(step_time, [*LOGS_EACH_TENTH[:9], 231.0]) == pytest.approx([3.0])


def test_after_a_window_its_steps_are_forgotten_and_their_length_is_not():
    step_time = StepTimeEstimate()
    slownesses(step_time, LOGS_EACH_TENTH * 8)
    step_time.forget()
    assert step_time.recent_ms == []
    assert slownesses(step_time, LOGS_EACH_TENTH[:8]) == []
    assert (step_time.recent_ms, step_time.sync_interval, step_time.usual_ms) == ([1.0] * 8, 10, pytest.approx(20.0))


def test_a_beat_that_is_over_is_forgotten():
    step_time = StepTimeEstimate()
    slownesses(step_time, LOGS_EACH_TENTH * 8)
    step_time.forget()
    slownesses(step_time, [20.0] * 56)
    assert (step_time.sync_interval, step_time.usual_ms) == (1, 20.0)


def test_between_windows_that_are_close_nothing_is_learned():
    step_time = StepTimeEstimate()
    for _ in range(40):
        assert slownesses(step_time, [20.0, 60.0]) == []
        step_time.forget()
    assert step_time.usual_ms == 0.0
