"""Waits of a CPU-only rank, by the definition in analysis/rank/cpu_only.py; numbers are calculated by hand."""

from __future__ import annotations

import json

import pytest

from rankscope.analysis.rank.cpu_only import cpu_waits, settle_ends
from rankscope.analysis.rank.view import make_view
from rankscope.trace.files.load import load_traces

US = 1000  # ns


def recorded(tmp_path, events, world_size: int = 1):
    """The view of rank 0, of whose trace these are the events."""
    trace = {
        "distributedInfo": {"rank": 0, "world_size": world_size, "backend": "gloo"},
        "traceEvents": [{"ph": "X", "pid": 7, **event} for event in events],
    }
    path = tmp_path / "rank_0.json"
    path.write_text(json.dumps(trace))
    (loaded,) = load_traces([path], cache=False).traces
    return settle_ends(make_view(loaded, 0))


def view_of(tmp_path, call_end_us: float, *, resume_us: float = 600, next_call_end_us: float | None = None):
    """An operator to 100 us, a call from 90 us on, nothing until ``resume_us``, then an operator of 300 us.

    A next call, if any, begins at 95 us.
    """
    events = [
        {"name": "ProfilerStep#1", "cat": "user_annotation", "tid": 1, "ts": 0, "dur": resume_us + 400},
        {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": 10, "dur": 90},
        {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 2, "ts": 90, "dur": call_end_us - 90},
        {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": resume_us, "dur": 300},
    ]
    if next_call_end_us is not None:
        after = {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 3, "ts": 95, "dur": next_call_end_us - 95}
        events.append(after)
    return recorded(tmp_path, events)


@pytest.mark.parametrize("call_end_us", [600, 640, 840], ids=["when-woken", "a-little-later", "on-a-loaded-machine"])
def test_a_call_ends_when_its_waiter_goes_on(tmp_path, call_end_us):
    # the backend's thread closes its range up to 240 us after the wake-up; half of the gap of 500 us is believed
    view = view_of(tmp_path, call_end_us)
    (row,) = view.trace.collectives.event
    assert view.trace.events.end[row] == 600 * US
    begin, resume, call = cpu_waits(view)
    assert (begin.tolist(), resume.tolist(), call.tolist()) == ([100 * US], [600 * US], [0])


def test_a_call_that_runs_on_was_not_waited_for(tmp_path):
    # GIVEN a call that ends 900 us after the thread went on, more than half of the gap and than 500 us
    view = view_of(tmp_path, 1500)
    (row,) = view.trace.collectives.event
    assert view.trace.events.end[row] == 1500 * US
    assert 600 * US not in cpu_waits(view)[1].tolist()


def test_a_call_that_ended_nearer_explains_the_wait(tmp_path):
    # GIVEN a loaded machine: one call ends 700 us before the thread goes on, the next one 1000 us after
    view = view_of(tmp_path, 2300, resume_us=3000, next_call_end_us=4000)
    # THEN the first was waited for, and the second keeps its end: peers may not even have arrived in it
    assert sorted(view.trace.events.end[view.trace.collectives.event].tolist()) == [2300 * US, 4000 * US]
    _, resume, call = cpu_waits(view)
    assert (resume[0], call[0]) == (3000 * US, 0)


def test_two_calls_that_are_waited_for_at_once(tmp_path):
    """As gradients are reduced in a group of the node and then in one across nodes: no operator runs between the two
    waits, of which the first was by far the longer."""
    events = [
        {"name": "ProfilerStep#1", "cat": "user_annotation", "tid": 1, "ts": 0, "dur": 2000},
        {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": 10, "dur": 90},
        {"name": "c10d::allreduce_", "cat": "cpu_op", "tid": 1, "ts": 110, "dur": 10},
        {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 2, "ts": 125, "dur": 875},
        {"name": "c10d::allreduce_", "cat": "cpu_op", "tid": 1, "ts": 1020, "dur": 10},
        {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 3, "ts": 1040, "dur": 160},
        {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": 1210, "dur": 300},
    ]
    begin, resume, call = cpu_waits(recorded(tmp_path, events, world_size=4))
    assert list(zip(begin.tolist(), resume.tolist(), call.tolist(), strict=True)) == [
        (110 * US, 1020 * US, 0),
        (1020 * US, 1210 * US, 1),
    ]


def test_a_message_after_gradients_ends_the_wait_for_these(tmp_path):
    """Two reductions are issued and waited for, the first of a late peer; then a message is sent at once."""
    events = [
        {"name": "ProfilerStep#1", "cat": "user_annotation", "tid": 1, "ts": 0, "dur": 2000},
        {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": 10, "dur": 90},
        {"name": "c10d::allreduce_", "cat": "cpu_op", "tid": 1, "ts": 110, "dur": 10},
        {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 2, "ts": 125, "dur": 875},
        {"name": "c10d::allreduce_", "cat": "cpu_op", "tid": 1, "ts": 130, "dur": 10},
        {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 2, "ts": 1001, "dur": 49},
        {"name": "c10d::send", "cat": "cpu_op", "tid": 1, "ts": 1070, "dur": 10},
        {"name": "gloo:send", "cat": "user_annotation", "tid": 1, "ts": 1075, "dur": 300},
        {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": 1400, "dur": 300},
    ]
    begin, resume, call = cpu_waits(recorded(tmp_path, events, world_size=4))
    assert list(zip(begin.tolist(), resume.tolist(), call.tolist(), strict=True)) == [
        (130 * US, 1070 * US, 1),
        (1070 * US, 1400 * US, 2),
    ]


def waiting_inside(tmp_path, *events):
    """A step of 1 ms in which an operator of a script's own issues a call at 110 us; the call runs to 600 us."""
    given = [
        {"name": "ProfilerStep#1", "cat": "user_annotation", "tid": 1, "ts": 0, "dur": 1000},
        {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": 10, "dur": 90},
        {"name": "c10d::allreduce_", "cat": "cpu_op", "tid": 1, "ts": 110, "dur": 10},
        {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 2, "ts": 115, "dur": 485},
        {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": 700, "dur": 200},
        *events,
    ]
    view = recorded(tmp_path, given)
    return view, list(zip(*(t.tolist() for t in view.compute), strict=True))


def test_an_operator_that_returns_with_its_call_waits_for_it(tmp_path):
    """It lasts from 105 to 610 us: 15 us until the call is issued and 10 us after it ended are its own."""
    outer = {"name": "ReduceFromRegion", "cat": "cpu_op", "tid": 1, "ts": 105, "dur": 505}
    view, compute = waiting_inside(tmp_path, outer)
    assert compute == [(10 * US, 100 * US), (105 * US, 120 * US), (600 * US, 610 * US), (700 * US, 900 * US)]
    begin, resume, call = cpu_waits(view)
    assert (begin[0], resume[0], call[0]) == (120 * US, 600 * US, 0)


def test_what_an_operator_computes_beside_its_call_is_work(tmp_path):
    outer = {"name": "ReduceFromRegion", "cat": "cpu_op", "tid": 1, "ts": 105, "dur": 505}
    inner = {"name": "aten::mm", "cat": "cpu_op", "tid": 1, "ts": 200, "dur": 300}
    _, compute = waiting_inside(tmp_path, outer, inner)
    assert (200 * US, 500 * US) in compute


def test_an_operator_that_returns_before_its_call_ended_did_not_wait(tmp_path):
    # 595 us before the call ended: the call runs on behind what follows
    outer = {"name": "ReduceFromRegion", "cat": "cpu_op", "tid": 1, "ts": 105, "dur": 20}
    later = {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 2, "ts": 650, "dur": 100}
    _, compute = waiting_inside(tmp_path, outer, later)
    assert (105 * US, 125 * US) in compute
