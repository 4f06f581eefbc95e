"""Windows by the definition of torch.profiler.schedule."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerAction

from rankscope.records.spec import ScheduleSpec


@pytest.mark.parametrize(
    "numbers",
    [(10, 1, 2, 6, 1), (0, 1, 2, 6, 2), (3, 0, 1, 1, 3), (5, 4, 3, 2, 2)],
    ids=lambda n: "/".join(map(str, n)),
)
def test_windows_are_those_of_torch_profiler(numbers):
    names = ("skip_first", "wait", "warmup", "active", "repeat")
    spec = ScheduleSpec(**dict(zip(names, numbers, strict=True)))
    upstream = torch.profiler.schedule(**{name: getattr(spec, name) for name in names})
    recorded = [n for n in range(60) if upstream(n) in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)]
    warm = [n for n in range(60) if upstream(n) is ProfilerAction.WARMUP]
    windows = [spec.window(number) for number in range(spec.repeat)]
    assert [n for w in windows for n in range(w.first, w.last + 1)] == recorded
    assert [n for w in windows for n in range(w.warm, w.first)] == warm
    assert spec.window(spec.repeat) is None


def test_every_so_many_steps_to_the_end_of_the_job():
    # GIVEN 5 steps skipped, then a cycle of wait 1, warmup 1, active 2 every 100 steps
    spec = ScheduleSpec(skip_first=5, wait=1, warmup=1, active=2, repeat=1, every=100)
    # THEN window n records steps 7 + 100 n and 8 + 100 n, without a last one
    assert [(spec.window(n).first, spec.window(n).last) for n in (0, 1, 1000)] == [(7, 8), (107, 108), (100007, 100008)]
