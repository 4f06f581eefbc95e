"""What is understood between a rank and its libkineto, with a libkineto that only makes files."""

from __future__ import annotations

import os

import pytest

from rankscope.agent.backends import kineto
from rankscope.agent.backends.kineto import KinetoLink, why_not_this_torch
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.records.spec import CaptureSpec


@pytest.fixture
def now(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def link(tmp_path, monkeypatch):
    """One that libkineto has just taken a request from; each further iteration without a file begins one."""
    began = []

    def iterate():
        if began and not list(tmp_path.glob("kineto_*.tmp")):
            (tmp_path / f"kineto_{len(began)}_{os.getpid()}.json.tmp").touch()
        began.append(True)

    monkeypatch.setattr(kineto, "_kineto_step", iterate)
    nothing = dict.fromkeys(["record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules"], False)
    link = KinetoLink(tmp_path, CaptureSpec(activities=["auto"], **nothing), CuptiTeardown())
    asked(tmp_path).unlink()
    link.tend()
    return link


def asked(folder):
    return folder / f"ask_{os.getpid()}"


def test_a_window_is_written_before_the_next_is_asked_for(link, tmp_path):
    link.warm_up(None)
    link.record()
    trace = link.end()
    link.tend()
    assert link.writes
    assert not asked(tmp_path).exists()
    trace.with_name(f"{trace.name}.tmp").rename(trace)
    link.tend()
    assert not link.writes
    assert asked(tmp_path).exists()


def test_another_profiler_waits_until_libkineto_asks_again(link, tmp_path):
    assert link.rest(0.0)
    link.warm_up(None)
    link.record()
    trace = link.end()
    assert not link.rest(0.0)
    trace.with_name(f"{trace.name}.tmp").rename(trace)
    assert not link.rest(0.0)
    asked(tmp_path).unlink()
    assert link.rest(0.0)


def test_libkineto_lets_go_of_cupti_from_the_beginning_of_a_window_until_it_asks_again(link, tmp_path, monkeypatch):
    # not only from its end: then it would subscribe to CUPTI in the middle of training
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    seen = []
    iterate = kineto._kineto_step
    monkeypatch.setattr(kineto, "_kineto_step", lambda: (seen.append(os.environ.get("TEARDOWN_CUPTI")), iterate()))
    link.warm_up("cuda")
    link.record()
    trace = link.end()
    assert seen == ["1", "1", "1"]
    trace.with_name(f"{trace.name}.tmp").rename(trace)
    link.tend()
    assert os.environ["TEARDOWN_CUPTI"] == "1"
    asked(tmp_path).unlink()
    link.tend()
    assert "TEARDOWN_CUPTI" not in os.environ


@pytest.mark.parametrize(("content", "waited_for"), [("", False), ('{"traceEvents": [', True)])
def test_a_file_that_stays_empty_is_not_waited_for_for_ever(link, tmp_path, now, content, waited_for):
    link.warm_up(None)
    link.record()
    now[0] += 1000  # however long the window is
    assert link.writes
    trace = link.end()
    trace.with_name(f"{trace.name}.tmp").write_text(content)
    now[0] += 100
    assert link.writes
    now[0] += 100
    assert link.writes is waited_for
    link.tend()
    assert asked(tmp_path).exists() is not waited_for


def test_no_iteration_follows_a_window_that_libkineto_gave_up(link, tmp_path):
    link.warm_up(None)
    (temporary,) = tmp_path.glob("kineto_*.tmp")
    temporary.unlink()
    with pytest.raises(RuntimeError, match="gave the window up"):
        link.record()
    assert not list(tmp_path.glob("kineto_*.tmp"))


@pytest.mark.parametrize(
    ("torch_version", "alone", "why"),
    [
        ("2.10.1", True, "from torch 2.11 on"),
        ("2.12.1+cu130", False, "kineto_alone"),
        ("2.12.1+cu130", True, None),
        ("2.13.0+cpu", False, None),
        ("3.0.0a0+git1", False, None),
    ],
)
def test_libkineto_that_would_end_the_scripts_own_profiler_is_not_used(monkeypatch, torch_version, alone, why):
    monkeypatch.setattr("torch.__version__", torch_version)
    said = why_not_this_torch(alone=alone)
    assert said is None if why is None else why in said
