"""Every example of a cause is true, and every cause has examples that match and that do not match."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.analysis.rank.host_time import RankHostTime
from rankscope.analysis.rank.view import make_view
from rankscope.causes.base import Cause, HostExample, WorkExample
from rankscope.causes.table import HOST_CAUSES, OURS, WORK_CAUSES
from rankscope.trace.files.load import load_traces

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
TAKES_THE_REST = "slow_compute"
"""Extra work that no other cause claims is of its kind, so it leaves nothing alone."""


def host_time(example: HostExample, folder: Path) -> RankHostTime:
    """What a rank of these events has to say: a Kineto trace of one step of 100 ms."""
    events = [("user_annotation", "ProfilerStep#1", 0, 100), *example.events]
    launched, written = 0, []
    for number, (category, name, start, length) in enumerate(events):
        if category == "cuda_runtime":
            launched = number
        device = category in ON_DEVICE
        event = {"ph": "X", "cat": category, "name": name, "ts": 1e3 * start, "dur": 1e3 * length}
        event |= {"pid": 0 if device else 9, "tid": 7 if device else 9}
        if device or category == "cuda_runtime":
            event["args"] = {"correlation": launched} | ({"device": 0, "stream": 7} if device else {})
        written.append(event)
    path = folder / "rank_0.json"
    about = {"rank": 0, "world_size": 1, "backend": "nccl"}
    path.write_text(json.dumps({"distributedInfo": about, "traceEvents": written}), encoding="utf-8")
    (trace,) = load_traces([path], workers=1, cache=False).traces
    return RankHostTime(make_view(trace, 0))


ON_HOST = [(c, e) for c in HOST_CAUSES for e in c.examples]
IN_WORK = [(c, e) for c in WORK_CAUSES for e in c.examples]


@pytest.mark.parametrize(("cause", "example"), ON_HOST, ids=[f"{c.name}-{e.claims_ms:g}" for c, e in ON_HOST])
def test_host_time_is_claimed_as_the_example_says(cause: Cause, example: HostExample, tmp_path: Path) -> None:
    begin, end = cause.host_time(host_time(example, tmp_path))
    assert (end - begin).sum() / 1e6 == pytest.approx(example.claims_ms, abs=0.01)


@pytest.mark.parametrize(("cause", "example"), IN_WORK, ids=[f"{c.name}-{e.claims}" for c, e in IN_WORK])
def test_extra_work_is_claimed_as_the_example_says(cause: Cause, example: WorkExample) -> None:
    assert cause.more_work(example) is example.claims


@pytest.mark.parametrize("cause", OURS, ids=lambda c: c.name)
def test_each_cause_has_examples_of_both_kinds(cause: Cause) -> None:
    kind = HostExample if cause.host_time else WorkExample
    assert all(isinstance(example, kind) for example in cause.examples)
    claims = {bool(e.claims_ms if isinstance(e, HostExample) else e.claims) for e in cause.examples}
    if not cause.host_time and not cause.more_work:
        assert claims == set()
    else:
        assert claims == ({True} if cause.name == TAKES_THE_REST else {True, False})
