"""Who waits for the device, and for which."""

from __future__ import annotations

import threading

import pytest
import torch

from rankscope.agent.process.exit import Settler


@pytest.fixture
def synchronized(monkeypatch):
    """The devices that were waited for; the training thread uses the sixth of a host."""
    waited: list[int] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 5 if _in_training() else 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda index=None: waited.append(0 if index is None else index))
    return waited


def _in_training() -> bool:
    return threading.current_thread() is threading.main_thread()


def _settlers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rankscope-settler"]


def test_it_waits_for_the_device_of_the_training_thread(synchronized):
    settler = Settler("cuda")
    assert settler.settles(30)
    assert synchronized == [5]


def test_a_window_that_ends_well_touches_no_device_and_leaves_no_thread(synchronized):
    settler = Settler("cuda")
    (thread,) = _settlers()
    settler.dismiss()
    thread.join(30)
    assert not thread.is_alive()
    assert synchronized == []


def test_without_a_device_there_is_nothing_to_wait_for():
    settler = Settler(None)
    assert _settlers() == []
    assert settler.settles(0)
