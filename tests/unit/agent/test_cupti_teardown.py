"""The variable by which libkineto tears CUPTI down, and when a process may run its destructors."""

from __future__ import annotations

import os

import pytest
import torch

from rankscope.agent.process import cupti_teardown as detach
from rankscope.agent.process.cupti_teardown import CuptiTeardown

NAME = "TEARDOWN_CUPTI"
NOT_LAZILY = "DISABLE_CUPTI_LAZY_REINIT"


def told(detaching) -> str | None:
    """What libkineto reads when it is called; the job and its children never see it."""
    outside = os.environ.get(NAME)
    with detaching.variable_set():
        value = os.environ.get(NAME)
    assert os.environ.get(NAME) == outside
    return value


@pytest.fixture(autouse=True)
def now(monkeypatch):
    for name in (NAME, NOT_LAZILY):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    return clock


def test_a_window_of_a_gpu_is_followed_by_letting_go(now):
    detaching = CuptiTeardown()
    assert detaching.close()
    detaching.decide("cuda")
    assert NAME not in os.environ
    assert told(detaching) == "1"
    assert not detaching.close()
    detaching.window_ended()
    assert NAME not in os.environ
    now[0] += 1  # its thread may wait for a call to the device still
    assert not detaching.close()
    now[0] += 2
    assert detaching.close()


def test_another_profiler_begins_when_cupti_was_let_go(now, monkeypatch):
    # GIVEN calls to the device that take 0.2 s
    calls = []

    def call():
        calls.append(now[0])
        now[0] += 0.2

    monkeypatch.setattr(detach, "_call", call)
    detaching = CuptiTeardown()
    detaching.finish()
    detaching.decide("cuda")
    detaching.finish()
    assert calls == []
    detaching.window_ended()
    detaching.finish()
    assert calls == pytest.approx([100.0, 100.2, 100.4])


def test_after_the_scripts_own_profiler_cupti_stays(now):
    detaching = CuptiTeardown()
    detaching.decide("cuda")
    detaching.stay_attached()
    assert told(detaching) == "1"  # of the window that is under way
    detaching.window_ended()
    detaching.decide("cuda")
    assert told(detaching) == "0"
    detaching.window_ended()
    assert NAME not in os.environ
    assert not detaching.close()  # it was let go of once, just now
    now[0] += 3
    assert detaching.close()


def test_where_graphs_are_captured_cupti_stays():
    detaching = CuptiTeardown()
    detaching.graph()
    assert NAME not in os.environ
    detaching.decide("cuda")
    assert told(detaching) == "0"
    detaching.window_ended()
    assert NAME not in os.environ
    assert detaching.close()


def test_a_graph_captured_in_a_window_is_not_replayed_after_letting_go():
    detaching = CuptiTeardown()
    detaching.decide("cuda")
    detaching.graph()
    assert told(detaching) == "0"
    detaching.window_ended()
    assert NAME not in os.environ


@pytest.mark.parametrize("value", ["1", "0"])
def test_with_cuda_graphs_the_users_variable_is_overridden_during_windows(monkeypatch, value):
    monkeypatch.setenv(NAME, value)
    detaching = CuptiTeardown()
    detaching.decide("cuda")
    detaching.graph()
    assert told(detaching) == "0"
    detaching.window_ended()
    assert os.environ[NAME] == value
    detaching.decide("cuda")
    assert told(detaching) == "0"
    detaching.window_ended()
    assert os.environ[NAME] == value


@pytest.mark.parametrize(("device", "cuda"), [(None, "13.0"), ("xpu", None), ("cuda", "12.4"), ("cuda", None)])
def test_on_other_devices_the_variable_is_not_set(monkeypatch, device, cuda):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    detaching = CuptiTeardown()
    detaching.decide(device)
    assert NAME not in os.environ
    detaching.window_ended()
    assert detaching.close()


@pytest.mark.parametrize(("value", "over"), [("1", False), ("0", True)])
def test_the_users_own_variable_is_not_changed(monkeypatch, value, over):
    monkeypatch.setenv(NAME, value)
    detaching = CuptiTeardown()
    detaching.decide("cuda")
    assert detaching.close() is over
    detaching.window_ended()
    assert detaching.close() is over
    assert os.environ[NAME] == value


def test_if_libkineto_must_not_attach_lazily_the_variable_is_not_set(monkeypatch):
    monkeypatch.setenv(NOT_LAZILY, "1")
    detaching = CuptiTeardown()
    detaching.decide("cuda")
    assert told(detaching) is None
