"""Objects that the script has changed or not created yet are not modified."""

from __future__ import annotations

import json

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function

from rankscope.agent.backends.base import StepMarks, device_in_use
from rankscope.agent.backends.open_ranges import OpenRanges
from rankscope.agent.backends.outstanding import OutstandingCalls


def test_no_driver_is_asked_before_the_script_has_used_a_device(monkeypatch):
    # Counting devices starts the driver: CUDA_VISIBLE_DEVICES is not read again, and forked children lose their device.
    def asked():
        raise AssertionError("the driver was asked")

    for module in (torch.cuda, torch.xpu):
        monkeypatch.setattr(module, "is_available", asked)
        monkeypatch.setattr(module, "device_count", asked)
        monkeypatch.setattr(module, "is_initialized", lambda: False)
    assert device_in_use() is None
    monkeypatch.setattr(torch.xpu, "is_initialized", lambda: True)
    assert device_in_use() == "xpu"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert device_in_use() == "cuda"


def test_what_the_script_has_put_around_a_watched_method_stays(monkeypatch):
    name = "allreduce"
    original = vars(dist.ProcessGroup)[name]
    calls = OutstandingCalls()
    calls.watch()
    ours = vars(dist.ProcessGroup)[name]
    theirs = lambda *words: ours(*words)  # noqa: E731 - around whatever stood there
    setattr(dist.ProcessGroup, name, theirs)
    calls.unwatch()
    try:
        assert vars(dist.ProcessGroup)[name] is theirs
        assert vars(dist.ProcessGroup)["broadcast"] is not ours
    finally:
        setattr(dist.ProcessGroup, name, original)
    calls.watch()
    calls.unwatch()
    assert vars(dist.ProcessGroup)[name] is original


def test_what_the_script_has_put_around_a_block_stays_and_nothing_is_noted_any_more():
    kind, original = record_function, record_function.__enter__
    ranges = OpenRanges()
    ranges.watch()
    ours = kind.__enter__
    kind.__enter__ = lambda this: ours(this)
    theirs = kind.__enter__
    ranges.end()
    try:
        assert kind.__enter__ is theirs
        with record_function("later"):
            assert ranges._open == []
    finally:
        kind.__enter__ = original


def test_marks_are_no_operators_that_a_mode_of_the_script_would_see(tmp_path):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    marks, ranges = StepMarks(), OpenRanges()
    with torch.profiler.profile(acc_events=True) as profile:  # without which torch 2.10 to 2.12 warn
        ranges.watch()
        block = record_function("mine")
        block.__enter__()
        with Operators(), Functions():
            marks.begin(1)
            marks.begin(2)
            marks.end()
            ranges.end()
            ranges.renew()
        assert seen == []
        block.__exit__(None, None, None)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    # the block is ended with the window, and what is begun again is another
    steps = [f"{name}#{step}" for name in ("ProfilerStep", "rankscope.step") for step in (1, 2)]
    assert sorted(names) == sorted([*steps, "mine", "mine"])
