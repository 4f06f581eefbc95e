"""Which exits wait for the device, and for which device."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import threading

import pytest
import torch

from rankscope.agent.process.exit import ExitHandler, Settler


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


@pytest.fixture
def guarding(monkeypatch):
    """A handler that guards against SIGTERM, as while a window is open, and what it closed with."""
    monkeypatch.setattr(atexit, "register", lambda _: None)
    reasons = []
    handler = ExitHandler(reasons.append, 1.0)
    handler.guard()
    yield handler, reasons
    handler.release()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_the_script_sees_the_signals_as_they_would_be_without_us(guarding):
    handler, reasons = guarding
    seen = []
    # a handler that is chained to what stood there before, as libraries that save checkpoints have it
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("theirs"))
    assert before is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM)(0, None) is None
    handler._on_sigterm(signal.SIGTERM, None)  # who had imported `getsignal` by its name
    assert (seen, reasons) == (["theirs"], [])
    handler.release()
    signal.raise_signal(signal.SIGTERM)
    assert seen == ["theirs"] * 2


def test_what_is_installed_for_a_window_is_gone_after_it(monkeypatch):
    monkeypatch.setattr(atexit, "register", lambda _: None)
    before = signal.signal, signal.getsignal, signal.set_wakeup_fd
    handler = ExitHandler(lambda _: None, 1.0)
    for _ in range(2):
        handler.guard()
        assert signal.signal is not before[0]
        handler.release()
        assert (signal.signal, signal.getsignal, signal.set_wakeup_fd) == before
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.set_wakeup_fd(-1) == -1


def test_a_wakeup_descriptor_of_the_script_can_be_taken_back_to_what_it_was(guarding):
    handler, _ = guarding
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno())
        handler.release()  # the window ends
        assert before == -1
        assert signal.set_wakeup_fd(before) == writer.fileno()


def test_descriptors_that_the_script_has_closed_and_used_again_are_left_alone(guarding, tmp_path):
    handler, _ = guarding
    number = handler._wakeup.fileno()
    with (tmp_path / "theirs").open("w") as theirs:
        os.dup2(theirs.fileno(), number)  # closes ours
    handler.release()
    assert os.write(number, b"still open") == 10
    os.close(number)
