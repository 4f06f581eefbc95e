"""The inline backend's dealings with CUPTI, without a device."""

from __future__ import annotations

import os

import pytest
import torch

from rankscope.agent.detach import Detaching
from rankscope.agent.inline import InlineCapture
from rankscope.model import CaptureSpec


class Profile:
    """Notes at each call whether libkineto would let go of CUPTI in it."""

    def __init__(self) -> None:
        self.profiler, self.calls = None, []

    def __getattr__(self, name):
        return lambda *_: self.calls.append((name, os.environ.get("TEARDOWN_CUPTI")))


@pytest.mark.parametrize("started", [True, False])
def test_cupti_is_let_go_at_the_end_of_a_window_and_not_at_its_beginning(monkeypatch, started):
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    nothing = dict.fromkeys(["record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules"], False)
    capture = InlineCapture(CaptureSpec(activities=["auto"], **nothing), Detaching())
    capture.device, capture._profile = "cuda", Profile()
    capture.prepare()
    if started:
        capture.start(0, {})
    capture.cancel()
    assert [call for call in capture._profile.calls if call[0] != "add_metadata_json"] == [
        ("prepare_trace", None),
        ("start_trace", None),
        ("stop_trace", "1"),
    ]
    assert "TEARDOWN_CUPTI" not in os.environ
