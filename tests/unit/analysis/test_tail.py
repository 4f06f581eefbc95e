"""A window that stayed open for the device: further steps of the host are not counted."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from rankscope.analysis.rank.trim import whole_steps
from rankscope.analysis.tables.summary import group_rows, rank_summaries, step_rows
from rankscope.analysis.windows.analyse import analyse_window


@pytest.fixture
def whole(recorded):
    """Four steps of two ranks, rank 1 late in each."""
    return recorded("ddp_dataloader_stall").traces


@pytest.fixture
def open_longer(whole):
    """The same recording as a window of three steps, with the fourth as its tail."""
    traces = copy.deepcopy(whole)
    for trace in traces:
        trace.meta.raw["rankscope"] = {"rank": trace.rank}
        trace.steps.number, trace.steps.start = trace.steps.number[:3], trace.steps.start[:3]
        trace.steps.duration = trace.steps.duration[:3]
        trace.events.step[trace.events.step == 3] = -1
    return traces


def test_waits_and_calls_per_step_are_those_of_the_steps(whole, open_longer):
    inside = [row for row in step_rows([analyse_window(whole)]) if row.rank == 0][:3]
    window = analyse_window(open_longer)
    (waits, _) = rank_summaries([window])
    assert waits.wait_ms_per_step == pytest.approx(sum(row.wait_ms for row in inside) / 3, rel=0.01)
    step = [trace.events.step[trace.collectives.event] for trace in whole]
    launched = sum(int(((own >= 0) & (own < 3)).sum()) for own in step) / len(whole)
    assert sum(row.calls_per_step for row in group_rows([window])) == pytest.approx(launched / 3)


def test_a_host_that_has_ended_its_steps_does_not_pause(whole, open_longer):
    # rank 0 waits for rank 1: its device ends the last step long after its host
    pauses = [analyse_window(traces).profiles[0].length["host_pause"].sum() for traces in (whole, open_longer)]
    assert pauses[1] <= pauses[0] < 1e6


def test_what_is_left_still_belongs_together(open_longer):
    for trace, kept in zip(open_longer, whole_steps(open_longer), strict=True):
        assert len(kept.events) < len(trace.events)
        names = [trace.strings[i] for i in kept.events.name[kept.collectives.event].tolist()]
        assert names
        assert all("nccl" in name for name in names)
        launched = kept.events.launch >= 0
        pairs = kept.events.correlation[launched], kept.events.correlation[kept.events.launch[launched]]
        assert np.array_equal(*pairs)


@pytest.fixture
def cut_short(whole):
    """The recording as it had been if it had ended while the device of rank 0 ran the third step."""
    trace = whole[0]
    events = trace.events
    device = events.stream >= 0
    third = np.sort(events.start[device & (events.step == 2)])
    lost = device & (events.start > third[len(third) // 2])
    for name in ("start", "duration"):  # never seen: as if they had run where nobody looks, and launched by nobody
        getattr(events, name)[lost] = events.start[0]
    events.launch[lost] = -1
    return whole


def test_steps_that_some_device_had_not_run_are_left_out_and_named(cut_short):
    window = analyse_window(cut_short)
    assert [view.trace.steps.number.tolist() for view in window.views] == [[4, 5], [4, 5]]
    (note,) = [note for note in window.notes if "the device" in note]
    assert "steps 6 to 7 are left out" in note


def test_a_recording_that_libkineto_ended_before_the_device(recorded):
    # in the file of rank 0, by its correlations: of the 467 launches of step 104 228 have their kernel, of 105 none
    window = analyse_window(recorded("kineto_input_stall").traces)
    assert [view.trace.steps.number.tolist() for view in window.views] == [[100, 101, 102, 103]] * 2
    assert window.matched.matched == window.matched.total


def test_windows_of_different_steps_are_not_cut_to_what_they_share(whole):
    whole[1].steps.number += 100
    assert [len(trace.steps) for trace in whole_steps(whole)] == [4, 4]


def test_other_peoples_traces_stay_whole(whole, open_longer):
    for trace in open_longer:
        del trace.meta.raw["rankscope"]
    for traces in (whole, open_longer):
        assert all(kept is trace for kept, trace in zip(whole_steps(traces), traces, strict=True))
